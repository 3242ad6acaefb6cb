"""How a group reads a value: on equal points, broadcast, permuted, sliced, reduced, reshaped or by data."""

from __future__ import annotations

from collections.abc import Collection

from fusebound.ir.graph import Graph, Node
from fusebound.ir.ops import spec_of


def relation(g: Graph, value: str, nodes: Collection[str]) -> str:
    """The kinds of access to `value` by its readers among `nodes`, in a fixed order, joined by "+"."""
    kinds = {_kind(g, n, value) for n in g.consumers[value] if n.id in nodes}
    return "+".join(k for k in _ORDER if k in kinds) or "none"


_ORDER = (
    "equal points",
    "broadcast",
    "permuted",
    "sliced",
    "reshaped",
    "piecewise",
    "reduced",
    "data-dependent",
)

_MOVES = {
    "permute": "permuted",
    "flip": "permuted",
    "slice": "sliced",
    "reshape": "reshaped",
    "expand": "broadcast",
    "cat": "piecewise",
    "pad": "piecewise",
    "slice_scatter": "piecewise",
}


def _kind(g: Graph, n: Node, value: str) -> str:
    spec = spec_of(n.op)
    if spec is None or spec.cls == "gather":
        return "data-dependent"
    if spec.cls == "reduce":
        return "reduced"
    if spec.cls == "move":
        return _MOVES[n.op]
    return "equal points" if g.values[value].shape == g.values[n.out].shape else "broadcast"
