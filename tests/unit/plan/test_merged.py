"""A merge is judged as the group that it makes, not as the pair that asks for it."""

from __future__ import annotations

from tests.unit.plan.graphs import Sketch, nodes

from fusebound.analysis.hazards import hazard
from fusebound.gates.base import Candidate, Facts
from fusebound.gates.decide import judge
from fusebound.ir.graph import Graph, Mutation
from fusebound.plan.greedy import plan
from fusebound.target import get

CPU = get("cpu-avx512")


def mirrored_update() -> Graph:
    """t = x.flip(0).exp(); u = t + y; x.mul_(u): each pair is fine, all three read x where others have written it."""
    s = Sketch()
    x, y = s.input("x", 4096, 1024), s.input("y", 4096, 1024)
    t = s.op("exp", "exp", s.op("flip", "flip", x, kind="move", dims=(0,)))
    u = s.op("add", "add", t, y)
    return s.done(mutations=(Mutation(x, s.op("mul_", "mul", x, u)),))


def test_pairs_are_fine_and_the_merged_triple_is_not() -> None:
    g = mirrored_update()
    reader, between, writer = nodes(g, "flip", "exp"), nodes(g, "add"), nodes(g, "mul_")
    facts = Facts(CPU)
    assert judge(Candidate(g, reader, between), facts).dependence
    assert judge(Candidate(g, between, writer), facts).dependence
    merged = judge(Candidate(g, reader | between, writer), facts).dependence
    assert (merged.code, bool(merged)) == ("F102", False)


def test_the_planner_judges_the_merged_group() -> None:
    g = mirrored_update()
    p = plan(g, target=CPU, expected_calls=10**9)
    refused = [d for d in p.decisions if d.judgement.dependence.code == "F102"]
    assert refused and all((d.accepted, d.operators) == (False, 4) for d in refused)
    assert [group.users for group in p.kernels] == [("flip", "exp"), ("add", "mul_")]
    assert all(hazard(g, group.nodes) is None for group in p.kernels)
