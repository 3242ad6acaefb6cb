"""Plans and explanations of real graphs, as they were captured from the built-in scenarios.

`pytest --update-golden` rewrites the expected files; graphs are inputs and are not rewritten.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from tests.golden.render import plan_text, why_text

from fusebound.ir.spec import verify
from fusebound.ir.text import parse_graph
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.target import get

GRAPHS = Path(__file__).parent / "graphs"
Golden = Callable[[str, str], None]

PLANS = [
    ("residual_layernorm_gelu", "cpu-avx512", "tile"),
    ("residual_layernorm_gelu", "cpu-avx512", "textbook"),
    ("transformer_block", "cpu-avx512", "tile"),
    ("transformer_block", "cpu-avx2", "loop"),
    ("transformer_block", "h100", "tile"),
    ("adamw_step", "cpu-avx512", "tile"),
    ("bert_layer", "cpu-avx512", "tile"),
    ("detection", "cpu-avx512", "tile"),
]

PAIRS = [
    ("residual_layernorm_gelu", "add", "layer_norm"),
    ("transformer_block", "linear", "mul_2"),
    ("transformer_block", "add_3", "add_5"),
    ("transformer_block", "silu", "mul_8"),
    ("adamw_step", "sqrt", "div"),
    ("bert_layer", "layer_norm", "add_1"),
    ("detection", "gt", "index_3"),
]


@cache
def planned(name: str, target: str, policy: str) -> Plan:
    g = parse_graph((GRAPHS / f"{name}.txt").read_text(encoding="utf-8"))
    verify(g)
    return plan(g, target=get(target), policy=policy)


@pytest.mark.parametrize(("name", "target", "policy"), PLANS)
def test_plans(golden: Golden, name: str, target: str, policy: str) -> None:
    golden(f"plans/{name}.{target}.{policy}.txt", plan_text(planned(name, target, policy)))


@pytest.mark.parametrize(("name", "a", "b"), PAIRS)
def test_explanations(golden: Golden, name: str, a: str, b: str) -> None:
    golden(f"why/{name}.{a}.{b}.txt", why_text(planned(name, "cpu-avx512", "tile").why(a, b)))


SCRIPT = """
import sys
from pathlib import Path
from fusebound.ir.text import parse_graph
from fusebound.plan.greedy import plan
from fusebound.target import get
import json
g = parse_graph(Path(sys.argv[1]).read_text(encoding="utf-8"))
print(json.dumps(plan(g, target=get("cpu-avx512")).to_json()))
"""


def test_plans_do_not_depend_on_the_order_of_hashes() -> None:
    def planned_with(seed: str) -> bytes:
        command = [sys.executable, "-c", SCRIPT, str(GRAPHS / "detection.txt")]
        done = subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        return done.stdout

    assert planned_with("1") == planned_with("2") != b""


def test_a_saved_plan(golden: Golden, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    planned("residual_layernorm_gelu", "cpu-avx512", "tile").save(path)
    golden("plans/residual_layernorm_gelu.json", path.read_text(encoding="utf-8"))
