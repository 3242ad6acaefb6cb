"""Operators that raise on some data: primitives at an element (`OpSpec.raises`), and whatever the framework runs.

A kernel evaluates what its results need. Eager evaluates every element, and raises also for one that a slice drops or
an update overwrites afterwards; so such an operator is fused only where the kernel evaluates all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fusebound.ir.dtypes import DTYPES
from fusebound.ir.graph import Graph, Node
from fusebound.ir.ops import spec_of


def partly_checked(g: Graph, order: Sequence[Node], outputs: Collection[str]) -> Node | None:
    """An operator of the group (`order`, operands first) that may raise at an element that the kernel does not
    evaluate, if there is one."""
    whole = set(outputs)
    slices: dict[str, list[Node]] = {}
    for n in reversed(order):
        if n.out in whole or _covered(g, n.out, slices.get(n.out, ())):
            match n.op:
                case "slice":
                    slices.setdefault(n.inputs[0], []).append(n)
                case "slice_scatter" | "gather" | "index_select":
                    whole.update(n.inputs[1:])
                case _:
                    whole.update(n.inputs)
        elif may_raise(g, n):
            return n
    return None


def _covered(g: Graph, value: str, slices: Sequence[Node]) -> bool:
    """Whether slices along one axis take every element of a value between them."""
    shape = g.values[value].shape
    spans = sorted(_span(g, n) for n in slices if n.attr("step") == 1)
    for dim, size in enumerate(shape):
        reached = 0
        for axis, start, end in spans:
            if axis == dim and start <= reached:
                reached = max(reached, end)
        if reached == size:
            return bool(spans)
    return False


def _span(g: Graph, n: Node) -> tuple[int, int, int]:
    """The axis of a slice, its first element and the one after its last."""
    dim, start = n.attr("dim"), n.attr("start")
    assert isinstance(dim, int) and isinstance(start, int)
    size = g.values[n.out].shape[dim]
    assert isinstance(size, int)
    return dim, start, start + size


def may_raise(g: Graph, n: Node) -> bool:
    """Whether an operator may refuse its data. A primitive's spec says what it refuses; of any other operator nobody
    knows (`poisson` wants positive rates, `cholesky` a positive matrix)."""
    spec = spec_of(n.op)
    if spec is None or spec.raises != "division":
        return spec is None or spec.raises is not None
    divisor = g.producer.get(n.inputs[1])
    constant = divisor is not None and divisor.op == "const" and bool(divisor.attr("value"))
    return not DTYPES[g.values[n.out].dtype].is_float and not constant
