"""How often a kernel evaluates a value that is smaller than what it is broadcast to."""

from __future__ import annotations

from collections.abc import Collection

from fusebound.analysis.group import in_order
from fusebound.ir.graph import Graph, Node, hint
from fusebound.ir.ops import spec_of


def repeats(g: Graph, nodes: Collection[str]) -> dict[str, float]:
    """Evaluations of each value that `nodes` compute, per element of it.

    A vector along the innermost axis that is broadcast over rows is evaluated again in every row, because rows are
    the outer loop. A value per row is evaluated once and kept; so is the result of a reduction.
    """
    inside = frozenset(nodes)
    times: dict[str, float] = {}
    for n in reversed(in_order(g, inside)):
        here = max((times.get(v, 1.0) for v in n.outputs), default=1.0)
        spec = spec_of(n.op)
        for v in n.inputs:
            p = g.producer.get(v)
            if p is None or p.id not in inside:
                continue
            kept = spec is None or "reduce" in (spec.cls, _class(p))
            again = 1.0 if kept else here * _fan_out(g, n, v)
            times[v] = max(times.get(v, 1.0), again)
    return times


def _class(n: Node) -> str:
    spec = spec_of(n.op)
    return spec.cls if spec is not None else "opaque"


def _fan_out(g: Graph, n: Node, value: str) -> float:
    """Elements of the result for one of the operand, where the operand has the result's innermost axis."""
    spec = spec_of(n.op)
    if spec is None or spec.cls == "gather" or (spec.cls == "move" and n.op != "expand"):
        return 1.0
    a, b = g.values[value], g.values[n.out]
    if not a.shape or not b.shape or hint(a.shape[-1]) != hint(b.shape[-1]) or a.numel == 0:
        return 1.0
    return max(b.numel / a.numel, 1.0) if hint(a.shape[-1]) > 1 else 1.0
