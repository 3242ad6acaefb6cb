"""The textbook's example, Relu → Add → {Softmax, Mul}: for the checker, and as a graph of a real size."""

from __future__ import annotations

from fusebound.ir.builder import Builder
from fusebound.ir.graph import Graph, Ref
from fusebound.textbook.checker import FusionBoundaryChecker
from fusebound.textbook.operator import Operator

SHAPE = (8192, 2048)
"""Rows and columns of every tensor of the example."""

PAIRS = (("Relu", "Add"), ("Add", "Softmax"), ("Softmax", "Mul"))
"""The pairs that the textbook asks about."""


def operators() -> tuple[Operator, ...]:
    """Relu(x→t1), Add(t1, b→t2), Softmax(t2→y), Mul(t2→z)."""
    return (
        Operator("Relu", "elementwise", ("x",), ("t1",), shape=SHAPE),
        Operator("Add", "elementwise", ("t1", "b"), ("t2",), shape=SHAPE),
        Operator("Softmax", "reduce", ("t2",), ("y",), shape=SHAPE),
        Operator("Mul", "elementwise", ("t2",), ("z",), shape=SHAPE),
    )


def checker() -> FusionBoundaryChecker:
    """A checker to which the example's operators were added."""
    out = FusionBoundaryChecker()
    for op in operators():
        out.add_op(op)
    return out


def graph() -> Graph:
    """The same four operators as a graph over float32; Mul scales by 2."""
    b = Builder("textbook")
    x, bias = b.input("x", SHAPE, "float32"), b.input("b", SHAPE, "float32")
    b.begin("relu")
    t1 = b.emit("clamp_min", x, b.const(0.0, "float32"))
    b.end("aten.relu.default", (Ref(x),), (), (t1,), "pointwise")
    b.begin("add")
    t2 = b.emit("add", t1, bias)
    b.end("aten.add.Tensor", (Ref(t1), Ref(bias)), (), (t2,), "pointwise")
    b.begin("softmax")
    y = _softmax(b, t2)
    b.end("aten.softmax.int", (Ref(t2), -1), (), (y,), "reduce")
    b.begin("mul")
    z = b.emit("mul", t2, b.const(2.0, "float32"))
    b.end("aten.mul.Tensor", (Ref(t2), 2.0), (), (z,), "pointwise")
    return b.finish((y, z))


def _softmax(b: Builder, x: str) -> str:
    column = (SHAPE[0], 1)
    top = b.emit("reshape", b.emit("amax", x, axes=(1,)), shape=column)
    e = b.emit("exp", b.emit("sub", x, top))
    total = b.emit("reshape", b.emit("sum", e, axes=(1,)), shape=column)
    return b.emit("div", e, total)
