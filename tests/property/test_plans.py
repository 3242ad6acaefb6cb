"""Plans of random graphs are legal, and their bounds hold."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.plan.graphs import Sketch

from fusebound.gates.base import Candidate, Facts
from fusebound.gates.decide import judge
from fusebound.gates.gain import MODEL_ERROR
from fusebound.ir.graph import Graph
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.target import get

TARGETS = ("cpu-avx512", "cpu-avx2", "h100")


def random_graph(seed: int) -> Graph:
    """Pointwise operators, softmaxes, sums, views, broadcasts, boundaries; some results escape."""
    rng = random.Random(seed)
    s = Sketch(f"random{seed}")
    rows, columns = rng.choice([(64, 64), (512, 256), (4096, 1024)])
    full = [s.input("x", rows, columns), s.input("y", rows, columns)]
    row = [s.input("w", columns)]
    for k in range(rng.randint(3, 16)):
        x = rng.choice(full[-5:])
        match rng.randrange(8):
            case 0:
                full.append(s.softmax(x, f"softmax{k}"))
            case 1:
                full.append(s.opaque(f"opaque{k}", x))
            case 2:
                flat = s.view(f"view{k}", "reshape", x, (1,), shape=(rows * columns,))
                full.append(s.view(f"back{k}", "reshape", flat, (columns, 1), shape=(rows, columns)))
            case 3:
                row.append(s.op(f"sum{k}", "sum", x, kind="reduce", axes=(0,)))
            case 4:
                full.append(s.op(f"scale{k}", "mul", x, rng.choice(row)))
            case 5:
                full.append(s.op(f"unary{k}", rng.choice(("exp", "neg", "tanh")), x))
            case _:
                full.append(s.op(f"binary{k}", "add", x, rng.choice(full)))
    read = {v for n in s.b.nodes for v in n.inputs}
    ends = [n.out for n in s.b.nodes if n.out not in read]
    return s.done(*ends, *rng.sample([v for v in full[2:] if v not in ends] or ends, 1))


def check_legal(p: Plan) -> None:
    """Every operator once; each group reads only inputs and what earlier groups store; bounds hold."""
    g = p.graph
    assert sorted(u for x in p.groups for u in x.users) == sorted(u.name for u in g.user_ops)
    assert sorted(n for x in p.groups for n in x.nodes) == sorted(g.node)
    ready = set(g.input_ids)
    for x in p.groups:
        assert set(x.inputs) <= ready, x.id
        ready |= set(x.outputs)
        assert x.is_kernel or len(x.users) == 1
        assert x.bytes_after <= x.bytes_before
    assert g.escaping <= ready
    # A kernel of one operator may be predicted to lose by the model's error: it is measured.
    assert 0 <= p.lower_bound_us <= p.predicted_us <= p.eager_us * (1 + MODEL_ERROR) + 1e-3
    assert 0 <= p.gap <= 1
    for c in p.cuts:
        assert p.group_of[c.producer] is not p.group_of[c.consumer]
        assert c.code.startswith("F") and c.message


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.sampled_from(TARGETS), st.sampled_from([10, 10**6]))
def test_random_plans_are_legal(seed: int, target: str, calls: int) -> None:
    check_legal(plan(random_graph(seed), target=get(target), expected_calls=calls))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.sampled_from(["none", "elementwise", "loop", "textbook", "textbook-strict"]))
def test_tighter_policies_are_legal_too(seed: int, policy: str) -> None:
    check_legal(plan(random_graph(seed), target=get("cpu-avx512"), policy=policy, expected_calls=10**6))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6))
def test_every_kernel_passes_the_first_three_gates_as_a_whole(seed: int) -> None:
    target = get("cpu-avx512")
    p = plan(random_graph(seed), target=target, expected_calls=10**6)
    for x in p.kernels:
        whole = Candidate(p.graph, frozenset(x.nodes), frozenset())
        j = judge(whole, Facts(target, expected_calls=10**6))
        assert j.dependence and j.precision and j.resources, (x.users, j.codes)


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_holds_for_every_policy(seed: int) -> None:
    g = random_graph(seed)
    target = get("cpu-avx512")
    bound = plan(g, target=target).lower_bound_us
    for policy in ("none", "elementwise", "loop", "tile"):
        assert bound <= plan(g, target=target, policy=policy).predicted_us + 1e-6
