"""The planner's choices on small graphs."""

from __future__ import annotations

import pytest
from tests.unit.plan.graphs import Sketch, chain, nodes

from fusebound.analysis.roofline import kernel_cost
from fusebound.errors import UsageError
from fusebound.gates.rules import Rules
from fusebound.ir.graph import Graph, Mutation
from fusebound.plan.cost import eager_us, lower_bound_us, user_op_us
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.target import get

CPU = get("cpu-avx512")


def made(g: Graph, **options: object) -> Plan:
    return plan(g, target=CPU, **({"expected_calls": 10**6} | options))  # type: ignore[arg-type]


def users(p: Plan) -> list[tuple[str, ...]]:
    return [g.users for g in p.groups]


def residual_norm() -> Graph:
    """add → softmax → mul, with add kept as a residual, and a matrix product behind."""
    s = Sketch()
    x, r, w = s.input("x", 512, 1024), s.input("r", 512, 1024), s.input("w", 1024)
    a = s.op("add", "add", x, r)
    m = s.op("mul", "mul", s.softmax(a), w)
    y = s.opaque("linear", m, why="F607", kind="contract")
    return s.done(s.op("add_1", "add", y, a))


def test_a_reduction_with_pro_and_epilogue_is_one_kernel_of_two_outputs() -> None:
    p = made(residual_norm())
    assert users(p) == [("add", "softmax", "mul"), ("linear",), ("add_1",)]
    kernel = p.groups[0]
    assert kernel.is_kernel and kernel.inputs == ("x", "r", "w") and set(kernel.outputs) == {"add", "mul"}
    size = 512 * 1024 * 4
    assert kernel.bytes_before == 3 * size + 2 * size + 2 * size + 4096
    assert kernel.bytes_after == 2 * size + 4096 + 2 * size
    assert kernel.launches_before == 3


def test_every_cut_has_a_code_and_a_price() -> None:
    p = made(residual_norm())
    cuts = {(c.producer, c.consumer): c for c in p.cuts}
    assert {k: c.code for k, c in cuts.items()} == {
        ("mul", "linear"): "F607",
        ("linear", "add_1"): "F607",
        ("add", "add_1"): "F101",
    }
    assert all(c.bytes > 0 and c.cost_us > 0 and "model.py:" in c.message for c in p.cuts)


def test_the_predicted_time_lies_between_bound_and_eager() -> None:
    p = made(residual_norm())
    g = p.graph
    assert p.lower_bound_us == pytest.approx(lower_bound_us(g, CPU), abs=1e-3)
    assert p.lower_bound_us <= p.predicted_us < p.eager_us == pytest.approx(eager_us(g, CPU), abs=1e-3)
    parts = kernel_cost(g, nodes(g, "add", "softmax", "mul"), CPU).total
    parts += sum(user_op_us(g, g.user[u], CPU) for u in ("linear", "add_1"))
    assert p.predicted_us == pytest.approx(parts, abs=1e-2)
    assert p.gap == pytest.approx(1 - p.lower_bound_us / p.predicted_us, abs=1e-3)


def test_views_join_the_kernel_that_they_lie_in() -> None:
    s = Sketch()
    x = s.input("x", 64, 256)
    lead = s.view("lead", "reshape", x, (16384, 256, 1), shape=(1, 64, 256))
    t = s.view("t", "permute", s.op("exp", "exp", lead), (16384, 1, 256), perm=(0, 2, 1))
    p = made(s.done(s.op("neg", "neg", t)))
    assert users(p) == [("lead", "exp", "t", "neg")]
    assert p.groups[0].inputs == ("x",) and p.groups[0].launches_before == 2


def test_a_view_that_only_a_boundary_reads_stays_free() -> None:
    s = Sketch()
    x = s.input("x", 64, 256)
    t = s.view("t", "permute", s.op("neg", "neg", s.op("exp", "exp", x)), (1, 256), perm=(1, 0))
    p = made(s.done(s.opaque("linear", t)))
    assert users(p) == [("exp", "neg"), ("t",), ("linear",)]
    assert (p.groups[1].kind, p.groups[1].predicted_us, p.groups[1].bytes_before) == ("framework", 0.0, 0)
    assert [(c.producer, c.consumer) for c in p.cuts] == [("neg", "linear")], "views are looked through"


def test_readers_of_one_input_share_a_kernel() -> None:
    s = Sketch()
    x = s.input("x", 1024, 1024)
    p = made(s.done(*(s.op(f"f{k}", op, x) for k, op in enumerate(("exp", "neg", "abs")))))
    assert users(p) == [("f0", "f1", "f2")]
    assert p.groups[0].bytes_after == 4 * 1024 * 1024 * 4


def test_a_lone_operator_stays_with_the_framework_unless_its_kernel_is_faster() -> None:
    s = Sketch()
    x = s.input("x", 1024, 1024)
    p = made(s.done(s.op("exp", "exp", x)))
    assert p.groups[0].kind == "framework"
    s = Sketch()
    big = s.input("x", 8192, 4096)
    p = made(s.done(s.softmax(big)))
    assert p.groups[0].kind == "kernel", "eager faults 128 MB of fresh memory"
    assert made(p.graph, policy="none").groups[0].kind == "framework"


def test_policies_are_ordered() -> None:
    g = residual_norm()
    times = {p: made(g, policy=p).predicted_us for p in ("none", "elementwise", "loop", "tile")}
    assert times["none"] >= times["elementwise"] >= times["loop"] >= times["tile"]
    assert users(made(g, policy="none")) == [(u.name,) for u in g.user_ops]
    assert {c.code for c in made(g, policy="elementwise").cuts} >= {"F900"}


@pytest.mark.parametrize("policy", ["textbook", "textbook-strict"])
def test_the_textbook_refuses_what_several_read(policy: str) -> None:
    p = made(residual_norm(), policy=policy)
    assert p.group_of["add"].users == ("add",), "its result has two consumers"
    assert all(c.code == "F900" or c.code == "F607" for c in p.cuts)
    refused = next(c for c in p.cuts if c.producer == "add" and c.consumer == "softmax")
    assert f"policy {policy} refuses add (model.py:1) and softmax (model.py:2): dep" in refused.message


def test_a_chain_is_one_kernel_under_the_textbook_too() -> None:
    assert users(made(chain(), policy="textbook")) == [("add", "mul", "tanh")]


def test_eager_numerics_keep_reductions_out() -> None:
    p = made(residual_norm(), numerics="eager")
    assert users(p) == [("add",), ("softmax",), ("mul",), ("linear",), ("add_1",)]
    assert users(made(chain(), numerics="eager")) == [("add", "mul", "tanh")]


def test_rules_shape_a_plan() -> None:
    p = made(chain(), rules=Rules(forbid=(("add", "mul"),)))
    assert p.group_of["add"] is not p.group_of["mul"] is p.group_of["tanh"]
    small = plan(
        chain(rows=8, columns=8), target=CPU, expected_calls=1, rules=Rules(require=(("add", "mul"),))
    )
    assert small.group_of["add"] is small.group_of["mul"]


def test_equal_groups_share_one_compilation() -> None:
    def layers(n: int) -> Graph:
        s = Sketch()
        x = s.input("x", 16, 64)
        for k in range(n):
            x = s.opaque(f"linear{k}", s.op(f"neg{k}", "neg", s.op(f"exp{k}", "exp", x)))
        return s.done(x)

    calls = 60
    assert not plan(layers(1), target=CPU, expected_calls=calls).kernels
    assert len(plan(layers(12), target=CPU, expected_calls=calls).kernels) == 12


def test_mutations_are_outputs_of_their_kernel() -> None:
    s = Sketch()
    x, y = s.input("x", 1024, 1024), s.input("y", 1024, 1024)
    m = s.op("mul_", "mul", x, y)
    p = made(s.done(mutations=(Mutation(x, s.op("add_", "add", m, y)),)))
    assert users(p) == [("mul_", "add_")] and p.groups[0].outputs == ("add_",)


def test_planning_many_readers_stays_quick() -> None:
    s = Sketch()
    x = s.input("x", 256, 256)
    outs = [s.op(f"f{k}", "exp", x) for k in range(400)]
    p = made(s.done(*outs))
    assert len(p.decisions) < 3 * 400
    assert sum(len(g.users) for g in p.groups) == 400


def test_same_input_same_plan() -> None:
    assert made(residual_norm()) == made(residual_norm())


@pytest.mark.parametrize("bad", [{"policy": "brave"}, {"numerics": "vague"}])
def test_unknown_settings(bad: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="unknown"):
        made(chain(), **bad)


def test_a_whole_group_that_is_wrong_is_dissolved() -> None:
    """mean(x²) − mean(x)² of large numbers: the kernel's sums go below zero on other rows than eager's."""
    s = Sketch()
    b = s.b
    x = s.input("x", 4096, 1024)
    b.begin("shift")
    big = b.emit("add", x, b.const(1e4, "float32"))
    s._end("aten.add.Scalar", (x,), big, "pointwise")
    b.begin("spread")
    n = b.const(1024.0, "float32")
    square = b.emit("div", b.emit("sum", b.emit("mul", big, big), axes=(1,)), n)
    mean = b.emit("div", b.emit("sum", big, axes=(1,)), n)
    spread = b.emit("sqrt", b.emit("sub", square, b.emit("mul", mean, mean)))
    s._end("user.spread.default", (big,), spread, "reduce")
    p = made(s.done(spread))
    assert users(p) == [("shift",), ("spread",)]
    assert p.cuts[0].code == "F204" and "class" in p.cuts[0].message


def test_a_long_chain_costs_n_log_n() -> None:
    s = Sketch()
    v = s.input("x", 64, 64)
    for k in range(256):
        v = s.op(f"f{k}", "neg", v)
    p = made(s.done(v))
    assert len(p.kernels) == 1
    assert sum(d.operators for d in p.decisions) <= 256 * 8 * 2, "operators looked at, over all merges"
