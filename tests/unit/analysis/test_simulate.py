"""The interpreter, its roundings, smaller shapes and the error facts that come of them."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
import torch
from tests.catalogue.harness import one_kernel
from tests.unit.plan.graphs import Sketch, chain, nodes

from fusebound.analysis import datasets
from fusebound.analysis.interpret import evaluate, rounded
from fusebound.analysis.numerics import (
    jump_after,
    kept_roundings,
    needs_simulation,
    rounding_points,
    roundings_before_jumps,
)
from fusebound.analysis.shrink import MAX_ELEMENTS, shrink
from fusebound.analysis.simulate import simulate
from fusebound.analysis.tau import Difference
from fusebound.capture.torch import capture
from fusebound.ir.graph import Graph
from fusebound.ir.ops import OPS


def nearest_bfloat16(x: float) -> float:
    """By comparing the two neighbours, without integer tricks."""
    bits = struct.unpack("<I", struct.pack("<f", x))[0] & 0xFFFF0000
    around = [struct.unpack("<f", struct.pack("<I", b))[0] for b in (bits, bits + 0x10000)]
    low, high = abs(np.float32(x) - around[0]), abs(around[1] - np.float32(x))
    if low == high:
        return around[0] if (bits >> 16) % 2 == 0 else around[1]
    return around[0] if low < high else around[1]


def test_bfloat16_rounds_to_nearest_even() -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(2000) * 10.0 ** rng.uniform(-30, 30, 2000)).astype(np.float32)
    want = [nearest_bfloat16(float(v)) for v in x]
    assert np.array_equal(rounded(x.astype(np.float64), "bfloat16"), want)
    special = np.array([np.inf, -np.inf, -0.0, 1.00390625, 1.01171875])
    got = rounded(special, "bfloat16")
    assert list(got[:2]) == [np.inf, -np.inf] and np.signbit(got[2])
    assert list(got[3:]) == [1.0, 1.015625], "ties go to even"
    assert np.isnan(rounded(np.array([np.nan]), "bfloat16"))[0]


@pytest.mark.parametrize("mode", ["eager", "fused", "exact"])
def test_softmax_of_the_interpreter(mode) -> None:
    s = Sketch()
    g = s.done(s.softmax(s.input("x", 3, 7)))
    shapes = shrink(g, g.node.keys())
    assert shapes is not None
    x = np.random.default_rng(1).standard_normal((3, 7))
    e = np.exp(x - x.max(1, keepdims=True))
    got = evaluate(g, g.node.keys(), {"x": x}, shapes, mode)[g.outputs[0]]
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=1e-6)


ARGUMENTS = {
    "reshape": {"shape": (2, 12)}, "expand": {"shape": (2, 4, 6)}, "permute": {"perm": (1, 0)},
    "slice": {"shape": (4, 2), "dim": 1, "start": 1, "step": 2}, "flip": {"dims": (1,)},
    "pad": {"shape": (4, 8), "lo": (0, 1), "value": 0.0}, "cat": {"dim": 0},
    "gather": {"dim": 0}, "cast": {"dtype": "int32", "user": True},
    "iota": {"shape": (4, 6), "dtype": "float32", "dim": 1, "start": 0, "step": 1},
    "const": {"shape": (), "dtype": "float32", "value": 1.5},
    "random": {"shape": (4, 6), "draw": 0, "word": 1},
}  # fmt: skip
INTEGER = frozenset(("and", "or", "xor", "not", "shl", "shr"))


def single(op: str) -> Graph:
    """A graph of one primitive over [4, 6] operands."""
    s = Sketch()
    spec = OPS[op]
    count = 2 if spec.arity < 0 else spec.arity
    kind = "int64" if op in INTEGER else "float32"
    ids = [s.input(f"x{k}", 4, 6, dtype=kind) for k in range(count)]
    if op == "random":
        ids[0] = s.input("seed", dtype="int64")
    if op == "where":
        ids[0] = s.input("c", 4, 6, dtype="bool")
    if op in ("gather", "index_select"):
        ids[1] = s.input("i", 4, 6, dtype="int64") if op == "gather" else s.input("i", 3, dtype="int64")
    if op == "slice_scatter":
        ids[1] = s.input("part", 2, 6)
    extra = {"index_select": {"dim": 0}, "slice_scatter": {"dim": 0, "start": 1, "step": 1}}.get(op, {})
    attrs = ARGUMENTS.get(op, extra) | ({"axes": (1,)} if spec.cls == "reduce" else {})
    out = s.op(op, op, *ids, kind=spec.cls, **attrs)  # type: ignore[arg-type]
    return s.b.finish((out,))


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_primitive_has_a_meaning(op: str) -> None:
    g = single(op)
    shapes = shrink(g, g.node.keys())
    assert shapes is not None
    inputs = datasets.make(g, g.node.keys(), shapes, "normal")
    value = g.values[g.outputs[0]]
    for mode in ("eager", "fused", "exact"):
        got = evaluate(g, g.node.keys(), inputs, shapes, mode)[value.id]
        assert got.shape == value.shape
        assert got.dtype.kind == {"float": "f", "bool": "b"}.get(value.type.kind, "i")


def test_shapes_shrink_together_and_reduced_axes_stay() -> None:
    s = Sketch()
    x, r = s.input("x", 4096, 2048), s.input("r", 2048)
    g = s.done(s.softmax(s.op("add", "add", x, r)))
    shapes = shrink(g, g.node.keys())
    assert shapes is not None
    assert shapes["x"] == shapes["add"] and shapes["x"][1] == 2048 and shapes["x"][0] < 4096
    assert shapes["r"] == (2048,)
    assert np.prod(shapes["x"]) <= MAX_ELEMENTS


def test_what_the_framework_runs_is_not_simulated() -> None:
    s = Sketch()
    x = s.input("x", 64, 64)
    g = s.done(s.op("exp", "exp", s.opaque("strange", x)))
    assert simulate(g, nodes(g, "strange", "exp")) is None
    assert simulate(g, nodes(g, "exp")) is not None


def test_an_exponent_keeps_its_digits_in_a_kernel() -> None:
    """1.7 is no float32: eager's vectors round it, a kernel does not (docs/vector-math.md)."""
    g = capture(lambda x: x**1.7, (torch.ones(64),)).graph
    shapes = shrink(g, g.node.keys())
    assert shapes is not None
    x = {"x": np.exp(8 * np.random.default_rng(5).standard_normal(shapes["x"])).astype(np.float32)}
    eager, fused, exact = (
        evaluate(g, g.node.keys(), x, shapes, mode)[g.outputs[0]] for mode in ("eager", "fused", "exact")
    )
    assert np.array_equal(fused, rounded(exact, "float32"))
    assert not np.array_equal(eager, fused)


def test_results_that_another_thread_forgets_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(dict[Any, Any]):
        def __setitem__(self, key: Any, value: Any) -> None:
            self.clear()

    monkeypatch.setattr("fusebound.analysis.simulate._KNOWN", Forgetful())
    s = Sketch()
    g = s.done(s.op("exp", "exp", s.input("x", 64, 64)))
    assert simulate(g, frozenset(g.node)) is not None


def test_what_cannot_shrink_is_not_simulated() -> None:
    s = Sketch()
    g = s.done(s.op("total", "sum", s.input("x", 4096, 4096), kind="reduce", axes=(0, 1)))
    assert shrink(g, g.node.keys()) is None
    assert simulate(g, frozenset(g.node)) is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_fused_half_chain_is_nearer_to_float64_than_eager(dtype: str) -> None:
    g = chain(dtype)
    f = simulate(g, nodes(g, "add", "mul", "tanh"))
    assert f is not None and f.excess <= f.max_limit and not f.class_changes
    assert 0 < f.fused_rms < f.eager_rms
    assert needs_simulation(g, nodes(g, "add", "mul"), None, whole=False)
    assert not needs_simulation(g, nodes(g, "add"), None, whole=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_full_width_chain_is_bit_equal(dtype: str) -> None:
    g = chain(dtype)
    f = simulate(g, frozenset(g.node))
    assert f is not None and f.difference == Difference() and f.fused_max == f.eager_max
    assert not needs_simulation(g, frozenset(g.node), None, whole=True)
    assert needs_simulation(g, frozenset(g.node), 0.1, whole=False)


def test_half_overflow_that_only_eager_has_is_no_fault_of_the_kernel() -> None:
    s = Sketch()
    x = s.input("x", 64, dtype="float16")
    s.b.begin("big")
    big = s.b.emit("mul", x, s.b.const(60000.0, "float16"))
    s._end("aten.mul.Scalar", (x,), big, "pointwise")
    s.b.begin("small")
    small = s.b.emit("mul", big, s.b.const(0.0001, "float16"))
    s._end("aten.mul.Scalar", (big,), small, "pointwise")
    g = s.done(small)
    f = simulate(g, frozenset(g.node))
    assert f is not None and f.class_changes == 0


def scaled(s: Sketch, name: str, x: str, factor: float) -> str:
    """A composite: x times a number, computed in float32 and converted back."""
    dtype = s.b.values[x].dtype
    s.b.begin(name)
    wide = s.b.emit("cast", x, dtype="float32", user=False)
    out = s.b.emit("cast", s.b.emit("mul", wide, s.b.const(factor, "float32")), dtype=dtype, user=False)
    s._end("aten.mul.Scalar", (x,), out, "pointwise")
    return out


def test_a_composite_overflows_in_the_kernel_as_in_eager() -> None:
    s = Sketch()
    big = scaled(s, "big", s.input("x", 64, dtype="float16"), 60000.0)
    g = s.done(scaled(s, "small", big, 0.0001))
    f = simulate(g, frozenset(g.node))
    assert f is not None and f.difference == Difference() and f.eager_max == f.fused_max > 0
    assert f.finite_gained == f.class_changes == 0


def test_conversions_keep_their_rounding_and_copies_have_none() -> None:
    s = Sketch()
    x = s.input("x", 64, dtype="bfloat16")
    third = scaled(s, "third", x, 0.3)
    m = s.op("mul", "mul", third, x)
    copy = s.op("clone", "cast", m, dtype="bfloat16", user=False)
    g = s.done(s.op("exp", "exp", copy))
    inside = frozenset(g.node)
    assert rounding_points(g, inside) == ("mul",)
    assert kept_roundings(g, inside) == {third}


PROGRAMS = {
    "a composite, then a sum": lambda x, y: x * 3 + y,
    "a copy of a wide value": lambda x, y: (x * y).clone() - y,
    "the user's casts": lambda x, y: ((x * y).float() * 1.1).to(x.dtype) - y,
    "before a jump": lambda x, y: (x * y).round() - y,
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_simulated_kernel_rounds_where_the_built_one_does(program: str, dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = (torch.randn(4096, generator=rng).to(dtype) for _ in range(2))
    captured = capture(PROGRAMS[program], (x, y))
    g = captured.graph
    shapes = {v.id: tuple(int(d) for d in v.shape) for v in g.values.values()}
    inputs = {i.value: t.double().numpy() for i, t in zip(g.inputs, (x, y), strict=True)}
    simulated = evaluate(g, g.node.keys(), inputs, shapes, "fused")[g.outputs[0]]
    (built,) = one_kernel(captured, (x, y)).results
    assert np.array_equal(rounded(simulated, g.values[g.outputs[0]].dtype), built.double().numpy())


def test_the_reference_rounds_where_the_user_narrows() -> None:
    s = Sketch()
    x = s.input("x", 512, dtype="bfloat16")
    m = s.op("mul", "mul", x, x)
    wide = s.op("float", "cast", m, dtype="float32", user=True)
    g = s.done(wide, s.op("half", "cast", wide, dtype="float16", user=True))
    shapes = shrink(g, g.node.keys())
    assert shapes is not None
    inputs = {"x": np.linspace(0.1, 1, 512)}
    exact = evaluate(g, g.node.keys(), inputs, shapes, "exact")
    assert np.array_equal(exact["float"], exact["mul"])
    assert np.array_equal(exact["half"], exact["mul"].astype(np.float32).astype(np.float16))


def test_half_types_are_reached_by_way_of_float32() -> None:
    x = np.array([1 + 2**-11 + 2**-30, -65519.9999999, 2**-25 + 2**-60])
    for name, dtype in (("float16", torch.float16), ("bfloat16", torch.bfloat16)):
        want = torch.from_numpy(x).to(dtype).double().numpy()
        with np.errstate(over="ignore"):
            assert np.array_equal(rounded(x, name), want)


def test_rounding_points_and_jumps() -> None:
    s = Sketch()
    x, y = s.input("x", 64, dtype="bfloat16"), s.input("y", 64, dtype="bfloat16")
    m = s.op("mul", "mul", x, y)
    n = s.op("neg", "neg", m)
    g = s.done(s.op("eq", "eq", n, y), s.op("exp", "exp", s.op("add", "add", x, y)))
    inside = frozenset(g.node)
    assert rounding_points(g, inside) == ("add",), "a negation rounds nothing, mul stays rounded"
    assert roundings_before_jumps(g, inside) == ("mul",)
    assert kept_roundings(g, inside) == {"mul", "neg"}
    assert kept_roundings(g, inside, "eager") == {"mul", "neg", "add", "exp"}
    assert [p.id for p in jump_after(g, "mul", inside)] == ["neg", "eq"]
    assert jump_after(g, "mul", nodes(g, "mul", "neg")) == ()


def test_a_conversion_to_integers_jumps() -> None:
    s = Sketch()
    x = s.input("x", 64, dtype="float16")
    m = s.op("mul", "mul", x, x)
    g = s.done(
        s.op("to", "cast", m, dtype="int32", user=True), s.op("wide", "cast", m, dtype="float32", user=True)
    )
    assert kept_roundings(g, nodes(g, "mul", "to")) == {"mul"}
    assert kept_roundings(g, nodes(g, "mul", "wide")) == frozenset()


@pytest.mark.parametrize(("target", "user", "kept"), [
    ("bfloat16", True, {"mul", "to"}), ("bfloat16", False, {"to"}), ("float16", True, set()), ("float32", True, set()),
])  # fmt: skip
def test_a_narrowing_conversion_of_the_users_jumps(target: str, user: bool, kept: set[str]) -> None:
    s = Sketch()
    x = s.input("x", 64, dtype="float16")
    to = s.op("to", "cast", s.op("mul", "mul", x, x), dtype=target, user=user)
    g = s.done(s.op("neg", "neg", to))
    assert kept_roundings(g, nodes(g, "mul", "to")) == kept


def test_kept_roundings_make_jumps_equal_to_eagers() -> None:
    s = Sketch()
    x, y = s.input("x", 512, dtype="bfloat16"), s.input("y", 512, dtype="bfloat16")
    g = s.done(s.op("floor", "floor", s.op("mul", "mul", x, y)))
    inside = frozenset(g.node)
    shapes = shrink(g, inside)
    assert shapes is not None
    inputs = datasets.make(g, inside, shapes, "wide")
    eager, fused, exact = (
        evaluate(g, inside, inputs, shapes, m)["floor"] for m in ("eager", "fused", "exact")
    )
    assert np.array_equal(eager, fused)
    assert not np.array_equal(eager, exact), "the data does tell the two apart"


def test_reordered_sums_are_simulated_once_the_group_is_whole() -> None:
    s = Sketch()
    g = s.done(s.softmax(s.op("mul", "mul", *[s.input("x", 64, 128)] * 2)))
    inside = frozenset(g.node)
    assert needs_simulation(g, inside, None, whole=True)
    assert not needs_simulation(g, inside, None, whole=False)
    f = simulate(g, inside)
    assert f is not None and f.fused_rms <= f.rms_limit and f.output == g.outputs[0]


def test_equal_groups_are_simulated_once_but_keep_their_names() -> None:
    s = Sketch()
    x, y = s.input("x", 64, dtype="bfloat16"), s.input("y", 64, dtype="bfloat16")
    for name, v in (("a", x), ("b", y)):
        s.op(f"{name}2", "exp", s.op(f"{name}1", "mul", v, v))
    g = s.done("a2", "b2")
    one, two = simulate(g, nodes(g, "a1", "a2")), simulate(g, nodes(g, "b1", "b2"))
    assert one is not None and two is not None
    assert (one.output, two.output) == ("a2", "b2") and one.fused_rms == two.fused_rms
