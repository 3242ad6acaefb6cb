"""What measuring refuses runs through the framework, and the plan says what that takes."""

from __future__ import annotations

from tests.unit.plan.graphs import Sketch, chain

from fusebound.plan.cost import eager_us
from fusebound.plan.dissolve import Measured, dissolve
from fusebound.plan.greedy import plan
from fusebound.plan.record import plan_from_json, plan_to_json
from fusebound.target import get

TARGET = get("cpu-avx512")


def test_a_plan_without_kernels_is_predicted_as_eager() -> None:
    p = plan(chain(), target=TARGET, expected_calls=10**9)
    assert p.kernels and p.predicted_us < p.eager_us
    q = dissolve(p, {g.id: Measured(2.0, 1.0) for g in p.kernels}, TARGET)
    assert q.kernels == () and sorted(u for g in q.groups for u in g.users) == sorted(p.graph.user)
    assert abs(q.predicted_us - eager_us(p.graph, TARGET)) < 1e-3
    assert abs(q.gap - (1 - q.lower_bound_us / q.predicted_us)) < 1e-4


def test_the_cuts_are_those_inside_the_lost_kernel() -> None:
    s = Sketch()
    x = s.input("x", 4096, 1024)
    g = s.done(s.op("exp", "exp", s.op("add", "add", x, x)))
    p = plan(g, target=TARGET, expected_calls=10**9)
    q = dissolve(p, {k.id: Measured(9.0, 4.0) for k in p.kernels}, TARGET)
    (cut,) = [c for c in q.cuts if c.code == "F405"]
    assert (cut.producer, cut.consumer, cut.value, cut.bytes) == ("add", "exp", "add", 2 * 4096 * 1024 * 4)
    assert cut.cost_us > 0 and "9 µs against 4 µs" in cut.message


def test_why_tells_what_was_measured_in_a_saved_plan_too() -> None:
    p = plan(chain(), target=TARGET, expected_calls=10**9)
    q = dissolve(p, {g.id: Measured(9.0, 4.0) for g in p.kernels}, TARGET)
    again = plan_from_json(plan_to_json(q))
    assert again.dissolved == q.dissolved and again == q
    a, b = q.dissolved[0].users[:2]
    found = again.why(a, b)
    assert found.codes[-1] == "F405" and found.fused is False
    assert "9 µs, the framework at 4 µs" in found.gain.message
    assert [e for e in found.gain.evidence if e.source == "measured"]


def test_what_did_not_lose_stays() -> None:
    p = plan(chain(), target=TARGET, expected_calls=10**9)
    assert dissolve(p, {g.id: Measured(1.0, 1.0) for g in p.kernels}, TARGET) is p
    assert dissolve(p, {}, TARGET) is p
