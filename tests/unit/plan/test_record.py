"""Plans as JSON: round trips, damage, plans of other graphs, differences."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.plan.graphs import Sketch, chain, triangle

from fusebound.errors import FormatError
from fusebound.gates.rules import Rules
from fusebound.plan.greedy import plan
from fusebound.plan.plan import FORMAT, Plan
from fusebound.target import get

CPU = get("cpu-avx512")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    plan(triangle(), target=CPU, expected_calls=10**6).save(path)
    return path


def test_a_plan_survives_its_file(saved: Path) -> None:
    p = plan(triangle(), target=CPU, expected_calls=10**6)
    again = Plan.load(saved, triangle())
    assert again == p and again.decisions and again.cuts
    again.save(saved.with_name("again.json"))
    assert saved.with_name("again.json").read_bytes() == saved.read_bytes()


def test_a_refusal_by_a_rule_stays_one() -> None:
    p = plan(chain(), target=CPU, expected_calls=10**6, rules=Rules(forbid=(("add", "mul"),)))
    assert Plan.from_json(json.loads(json.dumps(p.to_json()))) == p
    assert "rules" in {v.gate for d in p.decisions for v in d.judgement.verdicts}


def test_the_file_is_reviewable(saved: Path) -> None:
    data = json.loads(saved.read_text())
    assert data["format"] == FORMAT
    assert data["graph"][0].startswith("fusebound.graph 1")
    assert data["cuts"][0]["code"].startswith("F")


def test_a_plan_of_another_graph(saved: Path) -> None:
    with pytest.raises(FormatError, match="another graph"):
        Plan.load(saved, chain())


def change(key: str, to: Any) -> Callable[[dict[str, Any]], None]:
    return lambda d: d.__setitem__(key, to)


def drop_a_group(d: dict[str, Any]) -> None:
    d["groups"].pop()


def rename_a_node(d: dict[str, Any]) -> None:
    d["groups"][0]["nodes"] = ["nothing"]


def resize_a_tensor(d: dict[str, Any]) -> None:
    d["graph"] = [line.replace("4096", "4095") for line in d["graph"]]


@pytest.mark.parametrize(
    "damage",
    [
        change("format", "fusebound.graph/1"),
        change("graph", ["nonsense"]),
        change("groups", 7),
        change("predicted_us", "fast"),
        change("decisions", [{"step": 0}]),
        lambda d: d.pop("policy"),
        lambda d: d["groups"][0]["nodes"].pop(),
        lambda d: d["groups"][0].update(nodes=[["a"]]),
        lambda d: d["groups"][0].update(inputs=[]),
        lambda d: d["groups"][0].update(users=0.5),
        drop_a_group,
        rename_a_node,
        resize_a_tensor,
    ],
)
def test_damaged_plans_are_one_diagnostic(saved: Path, damage: Callable[[dict[str, Any]], None]) -> None:
    data = json.loads(saved.read_text())
    damage(data)
    saved.write_text(json.dumps(data))
    with pytest.raises(FormatError) as e:
        Plan.load(saved)
    assert e.value.where == str(saved)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe"])
def test_files_that_are_no_plans(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(FormatError):
        Plan.load(path)
    with pytest.raises(FormatError, match="cannot read"):
        Plan.load(tmp_path / "absent.json")


def test_differences_are_lines() -> None:
    g = triangle()
    left = plan(chain(), target=CPU, expected_calls=10**6)
    right = plan(chain(), target=CPU, expected_calls=10**6, policy="none")
    d = left.diff(right)
    assert bool(d) and "- group add + mul + tanh" in d.lines() and "+ group add" in d.lines()
    assert "! policy: tile → none" in d.lines()
    assert any(line.startswith("+ cut add → mul on add: F900") for line in d.lines())
    same = plan(g, target=CPU).diff(plan(g, target=CPU))
    assert not same and same.lines() == []


def test_groups_of_views_alone_are_no_difference() -> None:
    s = Sketch()
    x = s.input("x", 4096, 2048)
    t = s.view("t", "permute", s.op("exp", "exp", x), (1, 2048), perm=(1, 0))
    g = s.done(s.op("neg", "neg", t))
    whole = plan(g, target=CPU, expected_calls=10**6)
    lines = whole.diff(plan(g, target=CPU, expected_calls=10**6, policy="none")).lines()
    groups = [line for line in lines if " group " in line]
    assert groups == ["- group exp + t + neg", "+ group exp", "+ group neg"]


def test_the_repr_is_one_line() -> None:
    p = plan(chain(), target=CPU, expected_calls=10**6)
    size = 4096 * 2048 * 4
    assert repr(p).startswith(f"<Plan of chain: 1 group, 1 kernel, {3 * size:,} bytes, ")
    assert repr(p.why("add", "mul")).startswith("<Why add (model.py:1) + mul (model.py:2): one kernel passes")
    assert "\n" not in repr(p) + repr(p.why("add", "mul"))


def test_a_plan_without_its_graph_says_so(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text('{"format": "fusebound.plan/1"}')
    with pytest.raises(FormatError, match="damaged plan: 'graph' is missing"):
        Plan.load(path)
