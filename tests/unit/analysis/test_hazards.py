"""WAR by index maps, and why WAW is no hazard."""

from __future__ import annotations

import pytest
from tests.unit.plan.graphs import Sketch, nodes

from fusebound import target
from fusebound.analysis import hazards
from fusebound.analysis.hazards import MAX_POINTS, Hazard, Undecided, hazard
from fusebound.analysis.space import Space
from fusebound.gates import pages
from fusebound.gates.base import Candidate, Facts
from fusebound.gates.decide import judge
from fusebound.ir.graph import Graph, Mutation
from fusebound.ir.text import parse_graph, print_graph


def shifted() -> Graph:
    """x[1:] = x[:-1] + x[:-1]"""
    s = Sketch()
    x = s.input("x", 64)
    low = s.view("slice", "slice", x, (1,), shape=(63,), dim=0, start=0, step=1)
    y = s.op("add", "add", low, low)
    z = s.op("slice_scatter", "slice_scatter", x, y, kind="move", dim=0, start=1, step=1)
    return s.done(mutations=(Mutation(x, z),))


def in_its_place() -> Graph:
    """x[1:] = x[1:] + x[1:]"""
    s = Sketch()
    x = s.input("x", 64)
    high = s.view("slice", "slice", x, (1,), shape=(63,), dim=0, start=1, step=1)
    y = s.op("add", "add", high, high)
    z = s.op("slice_scatter", "slice_scatter", x, y, kind="move", dim=0, start=1, step=1)
    return s.done(mutations=(Mutation(x, z),))


def flipped() -> Graph:
    """b.sub_(b.flip(0))"""
    s = Sketch()
    b = s.input("b", 64)
    r = s.op("flip", "flip", b, kind="move", dims=(0,))
    return s.done(mutations=(Mutation(b, s.op("sub_", "sub", b, r)),))


def normalised() -> Graph:
    """x.copy_(softmax(x)): a row is read as a whole before any of it is written."""
    s = Sketch()
    x = s.input("x", 8, 64)
    return s.done(mutations=(Mutation(x, s.softmax(x)),))


def normalised_and_scaled() -> Graph:
    """x.copy_(softmax(x) * x)"""
    s = Sketch()
    x = s.input("x", 8, 64)
    return s.done(mutations=(Mutation(x, s.op("mul", "mul", s.softmax(x), x)),))


def through_a_transpose() -> Graph:
    """x.t().mul_(x.t())"""
    s = Sketch()
    x = s.input("x", 8, 64)
    t = s.view("t", "permute", x, (1, 64), perm=(1, 0))
    m = s.op("mul_", "mul", t, t)
    back = s.op("back", "permute", m, kind="move", perm=(1, 0))
    return s.done(mutations=(Mutation(x, back),))


def transposed() -> Graph:
    """x.add_(x.t())"""
    s = Sketch()
    x = s.input("x", 64, 64)
    t = s.view("t", "permute", x, (1, 64), perm=(1, 0))
    return s.done(mutations=(Mutation(x, s.op("add_", "add", x, t)),))


def halved() -> Graph:
    """x[:32].copy_(x.view(32, 2).amax(1)): pairs of elements, of which one is another point's."""
    s = Sketch()
    x = s.input("x", 64)
    pairs = s.view("pairs", "reshape", x, (2, 1), shape=(32, 2))
    m = s.op("amax", "amax", pairs, kind="reduce", axes=(1,))
    z = s.op("slice_scatter", "slice_scatter", x, m, kind="move", dim=0, start=0, step=1)
    return s.done(mutations=(Mutation(x, z),))


def elementwise() -> Graph:
    """x.mul_(y).add_(x)"""
    s = Sketch()
    x, y = s.input("x", 64), s.input("y", 64)
    m = s.op("mul_", "mul", x, y)
    return s.done(mutations=(Mutation(x, s.op("add_", "add", m, m)),))


def column() -> Graph:
    """x[:, 0].mul_(x[:, 0]): written is one column, which is read at the written points alone."""
    s = Sketch()
    x = s.input("x", 64, 64)
    part = s.view("part", "slice", x, (64, 1), shape=(64, 1), dim=1, start=0, step=1)
    done = s.op(
        "done", "slice_scatter", x, s.op("mul_", "mul", part, part), kind="move", dim=1, start=0, step=1
    )
    return s.done(mutations=(Mutation(x, done),))


@pytest.mark.parametrize(
    ("make", "how"),
    [(shifted, "[i0 + -1]"), (flipped, "[-1*i0 + 63]"), (transposed, "[i1, i0]"), (halved, "[2*i0 + i1]")],
)
def test_reads_at_other_points_than_the_written_one(make, how: str) -> None:
    g = make()
    found = hazard(g, g.node.keys())
    assert isinstance(found, Hazard)
    assert found.read == how
    assert "model.py:" in found.message and "new tensor" in found.counterfactual


@pytest.mark.parametrize("make", [in_its_place, elementwise, normalised, through_a_transpose, column])
def test_reads_at_the_written_point_are_fine(make) -> None:
    g = make()
    assert hazard(g, g.node.keys()) is None


def test_the_write_alone_is_no_hazard() -> None:
    g = flipped()
    assert hazard(g, {"sub_"}) is None, "flip runs before and leaves a copy"


@pytest.mark.parametrize("start", [4, 32], ids=["overlapping", "apart"])
def test_two_versions_of_which_the_earlier_is_kept_are_two_values(start: int) -> None:
    """What keeps slice assignments apart is that the second reads a part of what the first must store."""
    s = Sketch()
    x, a, b = s.input("x", 64), s.input("a", 8), s.input("b", 8)
    first = s.op("first", "slice_scatter", x, a, kind="move", dim=0, start=0, step=1)
    second = s.op("second", "slice_scatter", first, b, kind="move", dim=0, start=start, step=1)
    g = s.done(first, mutations=(Mutation(x, second),))
    assert hazard(g, g.node.keys()) is None
    verdict = judge(
        Candidate(g, nodes(g, "first"), nodes(g, "second")), Facts(target.get("cpu-avx2"))
    ).dependence
    assert verdict.code == "F501" and "only part" in verdict.message and "no reader" in verdict.counterfactual


def test_a_search_that_reaches_its_limit_has_no_answer() -> None:
    g = pages.example("F108").graph
    found = hazard(g, g.node.keys())
    assert isinstance(found, Undecided) and found.storage == "t"
    assert MAX_POINTS <= found.points <= MAX_POINTS + 1


def test_what_is_not_made_of_the_target_is_not_searched() -> None:
    """The same chain scaled by another tensor: none of its 2,048 points reads what is written."""
    text = print_graph(pages.example("F108").graph)
    input_u = '%u = input user "u" : f32[8, 1]\nscale:'
    g = parse_graph(text.replace("scale:", input_u, 1).replace("%x, %t)", "%x, %u)"))
    assert g.node["scale"].inputs == ("x", "u") and g.mutations[0].target == "t"
    assert hazard(g, g.node.keys()) is None


def test_without_an_answer_nothing_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that has one iteration space and no hazard, whose search may look at a single point."""
    g = normalised_and_scaled()
    c = Candidate(g, nodes(g, "softmax"), nodes(g, "mul"))
    facts = Facts(target.get("cpu-avx2"))
    assert isinstance(c.space, Space) and judge(c, facts).dependence
    monkeypatch.setattr(hazards, "MAX_POINTS", 1)
    verdict = judge(c, facts).dependence
    assert (verdict.state, verdict.code, bool(verdict)) == ("unknown", "F108", False)


def test_a_group_without_an_iteration_space_says_so() -> None:
    """x[::2] += 1: the search ends at the strided assignment, which has no schedule either."""
    s = Sketch()
    x = s.input("x", 64)
    half = s.view("slice", "slice", x, (2,), shape=(32,), dim=0, start=0, step=2)
    y = s.op("exp", "exp", half)
    g = s.done(
        mutations=(Mutation(x, s.op("put", "slice_scatter", x, y, kind="move", dim=0, start=0, step=2)),)
    )
    assert isinstance(hazard(g, g.node.keys()), Undecided)
    c = Candidate(g, nodes(g, "slice", "exp"), nodes(g, "put"))
    assert judge(c, Facts(target.get("cpu-avx2"))).dependence.code == "F505"
