"""Graphs on which exactly one gate refuses, from default thresholds and named targets, and what flips it."""

from __future__ import annotations

import pytest
from tests.unit.plan.graphs import Sketch, chain, siblings, triangle, wide_sum

from fusebound.analysis.tau import Tau
from fusebound.gates.base import Facts
from fusebound.gates.decide import Judgement
from fusebound.ir.graph import Graph, Ref, Value
from fusebound.plan.explain import can_fuse
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.target import get


def refusals(j: Judgement) -> dict[str, str]:
    """Gate → code of every gate that does not pass."""
    return {v.gate: v.code for v in j.verdicts if not v}


def judged(g: Graph, a: str, b: str, target: str, **facts: object) -> Judgement:
    return can_fuse(g, a, b, Facts(get(target), **facts)).judgement  # type: ignore[arg-type]


def grouped(p: Plan) -> list[tuple[str, ...]]:
    """The kernels of several operators."""
    return [x.users for x in p.kernels if len(x.users) > 1]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_simulated_error_refuses_and_a_larger_tau_accepts(dtype: str) -> None:
    g = chain(dtype)
    tight = judged(g, "add", "mul", "cpu-avx512", tau=Tau(1e-6))
    assert refusals(tight) == {"precision": "F202"}
    evidence = next(e for e in tight.precision.evidence if e.quantity == "|fused − eager|")
    assert evidence.source == "simulated" and evidence.margin is not None and evidence.margin < 0
    assert isinstance(evidence.value, float)
    assert refusals(judged(g, "add", "mul", "cpu-avx512", tau=Tau(evidence.value))) == {}
    assert refusals(judged(g, "add", "mul", "cpu-avx512")) == {}, "fp64 says that fusing is more accurate"


@pytest.mark.parametrize(("index", "flip"), [("bool", "torch.where(mask"), ("int64", "none")])
def test_what_replaces_a_scatter(index: str, flip: str) -> None:
    s = Sketch()
    x, i = s.input("x", 64), s.input("i", 64, dtype=index)
    e = s.op("exp", "exp", x)
    s.b.begin("index_put")
    (out,) = s.b.opaque("aten.index_put.default", (e, i, x), [Value("", (64,), "float32", (1,))])
    s.b.end("aten.index_put.default", (Ref(e), (Ref(i),), Ref(x)), (), (out,), "scatter", why="F609")
    w = can_fuse(s.done(out), "exp", "index_put", Facts(get("cpu-avx512")))
    assert w.codes[0] == "F609" and w.counterfactual.startswith(flip)


def test_plans_follow_tau() -> None:
    target = get("cpu-avx512")
    assert grouped(plan(chain("bfloat16"), target=target, tau=Tau(1e-6))) == []
    assert grouped(plan(chain("bfloat16"), target=target, tau=Tau(1.0))) == [("add", "mul", "tanh")]


def test_registers_that_would_spill_refuse() -> None:
    few = judged(wide_sum(40, 8192, 2048), "powers", "relu", "cpu-avx2")
    assert refusals(few) == {"resources": "F301"}
    assert "registers" in few.resources.message and "powers (model.py:1)" in few.resources.message
    assert refusals(judged(wide_sum(10, 8192, 2048), "powers", "relu", "cpu-avx2")) == {}


def test_a_row_that_does_not_fit_shared_memory_refuses() -> None:
    def rows(columns: int) -> Graph:
        s = Sketch()
        x = s.input("x", 512, columns)
        return s.done(s.softmax(s.op("mul", "mul", x, x)))

    calls = {"expected_calls": 10**6}
    assert refusals(judged(rows(1 << 17), "mul", "softmax", "h100", **calls)) == {"resources": "F312"}
    assert refusals(judged(rows(1 << 12), "mul", "softmax", "h100", **calls)) == {}
    assert refusals(judged(rows(1 << 17), "mul", "softmax", "cpu-avx512", **calls)) == {}


def test_overlap_on_two_streams_refuses_side_by_side_kernels_on_a_gpu() -> None:
    def poolings(rows: int, target: str) -> Plan:
        return plan(siblings(rows), target=get(target), expected_calls=10**6)

    small = poolings(66, "h100")
    assert grouped(small) == [("mish", "mish_sum"), ("gelu", "gelu_sum")]
    refused = small.why("mish_sum", "gelu_sum")
    assert refusals(refused.judgement) == {"gain": "F402"}
    overlap = next(e for e in refused.gain.evidence if e.quantity == "T_overlap")
    assert isinstance(overlap.value, float) and overlap.value > 0
    whole = [("mish", "mish_sum", "gelu", "gelu_sum")]
    assert grouped(poolings(4800, "h100")) == whole, "kernels that fill the device do not overlap"
    assert grouped(poolings(66, "cpu-avx512")) == whole, "a CPU has one stream"


def test_compiling_for_few_calls_refuses() -> None:
    g = chain(rows=64, columns=512)
    once = judged(g, "add", "mul", "cpu-avx512", expected_calls=1)
    assert refusals(once) == {"gain": "F403"}
    needed = int("".join(c for c in once.gain.counterfactual if c.isdigit()))
    assert refusals(judged(g, "add", "mul", "cpu-avx512", expected_calls=needed - 1)) == {"gain": "F403"}
    assert refusals(judged(g, "add", "mul", "cpu-avx512", expected_calls=needed)) == {}
    target = get("cpu-avx512")
    assert grouped(plan(g, target=target, expected_calls=1)) == []
    assert grouped(plan(g, target=target, expected_calls=10**6)) == [("add", "mul", "tanh")]


def test_a_finished_group_that_does_not_pay_is_dissolved_on_the_record() -> None:
    p = plan(chain(rows=64, columns=512), target=get("cpu-avx512"), expected_calls=1)
    whole = next(d for d in p.decisions if d.operators == 3 and not d.accepted)
    assert (whole.a, whole.b, whole.judgement.gain.code) == ("add", "tanh", "F403")
    assert {c.code for c in p.cuts} == {"F403"}


def test_a_cycle_refuses() -> None:
    g = triangle()
    j = judged(g, "exp", "add", "cpu-avx512")
    assert refusals(j) == {"dependence": "F101"}
    assert "exp (model.py:1) → sort (model.py:2) → add (model.py:3)" in j.dependence.message
    p = plan(g, target=get("cpu-avx512"))
    assert [x.users for x in p.groups] == [("exp",), ("sort",), ("add",)]
    assert next(c for c in p.cuts if (c.producer, c.consumer) == ("exp", "add")).code == "F101"

    s = Sketch()
    x = s.input("x", 4096, 1024)
    e = s.op("exp", "exp", x)
    free = s.done(s.op("add", "add", e, s.op("tanh", "tanh", e)), s.opaque("sort", e))
    assert grouped(plan(free, target=get("cpu-avx512"))) == [("exp", "tanh", "add")]
