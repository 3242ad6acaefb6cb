"""The structure of a group without its names: equal groups need one kernel."""

from __future__ import annotations

from collections.abc import Collection

from fusebound.analysis.group import boundary, in_order
from fusebound.ir.graph import Graph, Value

Key = tuple[object, ...]


def structure(g: Graph, nodes: Collection[str]) -> Key:
    """A key that two groups share when one kernel serves both: operators, attributes, types, wiring."""
    inside = frozenset(nodes)
    inputs, outputs = boundary(g, inside)
    number = {v: k for k, v in enumerate(inputs)}
    rows: list[object] = [_type(g.values[v]) for v in inputs]
    for n in in_order(g, inside):
        for v in n.outputs:
            number[v] = len(number)
        wiring = tuple(number[v] for v in n.inputs)
        rows.append((n.op, wiring, repr(n.attrs), tuple(_type(g.values[v]) for v in n.outputs)))
    return (*rows, tuple(number[v] for v in outputs))


def _type(v: Value) -> object:
    return (v.shape, v.dtype, v.strides)
