"""`why` on plans: fused pairs, cut pairs, pairs that are no neighbours, names."""

from __future__ import annotations

import re

import pytest
from tests.unit.plan.graphs import Sketch, chain, triangle

from fusebound.errors import UsageError
from fusebound.gates.base import Facts
from fusebound.ir.graph import Ref
from fusebound.plan.explain import can_fuse
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.target import get


def made(g) -> Plan:
    return plan(g, target=get("cpu-avx512"), expected_calls=10**6)


def test_a_fused_pair_passes_and_says_so() -> None:
    w = made(chain()).why("add", "tanh")
    assert w.fused and bool(w) and w.codes == () and w.counterfactual == ""
    assert w.group == ("add", "mul", "tanh") and w.saved_bytes > 0
    assert (w.dependence.gate, w.precision.gate, w.resources.gate, w.gain.gate) == (
        "dependence", "precision", "resources", "gain",
    )  # fmt: skip


@pytest.mark.parametrize("both", [True, False])
def test_views_that_lie_between_are_free_before_the_merge(both: bool) -> None:
    """A gated activation of two halves of one product: what is saved is the activation, written and read."""
    s = Sketch()
    x = s.input("x", 64, 128)
    s.b.begin("split")
    halves = [s.b.emit("slice", x, dim=1, start=i, step=1, shape=(64, 64)) for i in (0, 64)]
    for h in halves:
        s.b.restride(h, (128, 1))
    s.b.end("aten.split.Tensor", (Ref(x),), (), tuple(halves), "move")
    g = s.done(s.op("mul", "mul", s.op("exp", "exp", halves[0]), halves[1]))
    size = 64 * 64 * 4
    w = made(g).why("exp", "mul") if both else can_fuse(g, "exp", "mul", Facts(get("cpu-avx512")))
    facts = {e.quantity: e.value for e in w.gain.evidence}
    assert w.saved_bytes == facts["bytes saved"] == 2 * size and facts["bytes fused"] == 3 * size
    assert "split" in w.group and facts["bytes apart"] == (2 + 3) * size


def test_the_order_of_the_names_does_not_matter() -> None:
    p = made(chain())
    assert p.why("add", "tanh") == p.why("tanh", "add")


def test_a_cut_pair_names_the_obstacle_and_the_way_out() -> None:
    w = made(triangle()).why("exp", "add")
    assert w.fused is False and not w and w.codes == ("F101",)
    assert w.counterfactual == "none while sort (model.py:2) runs through the framework"
    assert w.saved_bytes > 0, "what is at stake is said although it is refused"


def test_operators_that_are_no_neighbours() -> None:
    s = Sketch()
    x, y = s.input("x", 4096, 64), s.input("y", 4096, 64)
    a = s.op("abs", "abs", s.op("exp", "exp", x))
    b = s.op("tanh", "tanh", s.op("neg", "neg", y))
    w = made(s.done(a, b)).why("exp", "tanh")
    assert w.codes[0] == "F107" and w.group == ("exp", "abs", "neg", "tanh")


def test_groups_are_judged_as_the_plan_has_them() -> None:
    s = Sketch()
    x = s.input("x", 4096, 64)
    e = s.op("exp", "exp", x)
    n = s.op("neg", "neg", e)
    o = s.opaque("sort", n)
    w = made(s.done(s.op("add", "add", o, n))).why("exp", "add")
    assert w.group == ("exp", "neg", "add") and w.codes == ("F101",)


def test_the_obstacle_is_named() -> None:
    s = Sketch()
    x = s.input("x", 4096, 64)
    e = s.op("exp", "exp", x)
    o = s.op("neg", "neg", s.opaque("sort", e))
    w = made(s.done(s.op("add", "add", o, e))).why("exp", "add")
    assert w.codes == ("F101",) and [u.name for u in w.obstacles] == ["sort"], "neg is one kernel with add"
    assert made(triangle()).why("exp", "sort").obstacles == (), "sort is asked for"


def test_a_merge_that_saves_no_bytes_says_what_its_time_is() -> None:
    s = Sketch()
    a = s.op("exp", "exp", s.input("x", 4096, 64))
    b = s.opaque("sort", s.input("y", 4096, 64))
    w = made(s.done(a, b)).why("exp", "sort")
    assert w.saved_bytes == 0
    assert re.fullmatch(
        r"would save (.*) µs per call \(.* µs of launches, no traffic\) if .*", w.gain.message
    )
    assert str(w.resources) == "resources: fail F601, not judged: no common iteration space"


def test_names_are_checked() -> None:
    p = made(chain())
    with pytest.raises(UsageError, match="tahn"):
        p.why("add", "tahn")
    with pytest.raises(UsageError, match="one operator"):
        p.why("add", "add")
