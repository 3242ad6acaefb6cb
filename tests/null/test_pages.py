"""Every code's page: readable, complete, and its embedded graph yields the code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fusebound import target
from fusebound.analysis.numerics import needs_simulation
from fusebound.analysis.simulate import simulate
from fusebound.analysis.tau import Tau
from fusebound.errors import UsageError
from fusebound.gates import pages
from fusebound.gates.base import OK, Facts
from fusebound.gates.decide import judge
from fusebound.gates.pages import Example
from fusebound.gates.rules import Rules
from fusebound.ir.spec import verify
from fusebound.ir.text import parse_graph, print_graph

GATE_CODES = [c for c in pages.codes() if c.startswith("F")]


def _facts(e: Example) -> Facts:
    """What the planner would know of the candidate: the page's settings, a simulation where one is due."""
    s = e.settings
    tau = Tau.parse(s["tau"]) if "tau" in s else None
    nodes = e.candidate().nodes
    found = simulate(e.graph, nodes, tau) if needs_simulation(e.graph, nodes, tau, whole=False) else None
    return Facts(
        target.get(s.get("hardware", "cpu-avx2")),
        numerics=s.get("numerics", "accurate"),
        tau=tau,
        rules=_rules(e),
        simulated={nodes: found} if found else {},
        expected_calls=int(s.get("expected_calls", "1000")),
        policy=s.get("policy", "tile"),
        measured={nodes: _times(s["measured"])} if "measured" in s else {},
    )


def _times(setting: str) -> tuple[float, float]:
    fused, eager = map(float, setting.split())
    return fused, eager


def _rules(e: Example) -> Rules:
    def pairs(key: str) -> tuple[tuple[str, str], ...]:
        words = e.settings.get(key, "").split()
        return ((words[0], words[1]),) if words else ()

    return Rules(pairs("forbid"), pairs("require"))


@pytest.mark.parametrize("code", GATE_CODES)
def test_the_example_of_a_page_yields_its_code(code: str) -> None:
    e = pages.example(code)
    verify(e.graph)
    assert parse_graph(print_graph(e.graph)) == e.graph
    verdict = judge(e.candidate(), _facts(e))
    facts = [x.quantity for v in verdict.verdicts for x in v.evidence]
    assert code in verdict.codes or any(f"({code})" in q for q in facts), (verdict.codes, facts)


@pytest.mark.parametrize("code", pages.codes())
def test_a_page_has_its_parts(code: str) -> None:
    text = pages.page(code)
    assert re.match(rf"# {code}: \S.*\n\n", text)
    assert pages.title(code) and not pages.title(code).endswith(".")
    assert "## Why it matters\n" in text
    assert len(text.split("## Why it matters")[0]) > 150, "it says what the code means"
    if code.startswith("F"):
        assert re.search(r"^\*\*Gate\*\* \w+ · \*\*State\*\* ", text, re.MULTILINE)
        assert text.index("## Why it matters") < text.index("## Example")


def test_every_code_that_the_source_gives_has_a_page() -> None:
    sources = (Path(__file__).parents[2] / "src").rglob("*.py")
    given = {c for p in sources for c in re.findall(r"[\"(](F\d{3})[\")]", p.read_text("utf-8"))}
    assert given - {OK} == set(GATE_CODES)


def test_a_larger_tau_accepts_what_f202_refuses() -> None:
    e = pages.example("F202")
    facts = _facts(e)
    assert judge(e.candidate(), facts).codes == ("F202",)
    for tau in (Tau(0.04), None):
        assert judge(e.candidate(), replace(facts, tau=tau))


def test_pages_are_found_in_any_case_and_misses_are_answered() -> None:
    assert pages.page("f101") == pages.page("F101")
    with pytest.raises(UsageError) as e:
        pages.page("F1011")
    assert "F101" in e.value.hint


def test_repeat_lines_count_up_and_down() -> None:
    g = pages.example("F301").graph
    assert g.node["power.19"].inputs == ("power.18", "x")
    assert g.node["sum.18"].inputs == ("sum.17", "power.1")


def test_every_error_code_that_the_source_gives_has_a_page() -> None:
    source = Path(__file__).parents[2] / "src"
    given = {c for p in source.rglob("*.py") for c in re.findall(r'"(E\d{3})"', p.read_text("utf-8"))}
    assert given == {p.stem for p in (source / "fusebound" / "cli" / "pages").glob("E*.md")}
