"""Which roundings to a narrow type a kernel must keep."""

from __future__ import annotations

from fusebound.ir.graph import Graph
from fusebound.ir.ops import OPS

NARROW = frozenset(("float16", "bfloat16"))


def kept_roundings(g: Graph, inside: frozenset[str], numerics: str) -> frozenset[str]:
    """Values of a narrow type that are rounded even in registers.

    Always: casts that the user wrote, and values from which a discontinuous operator is reached inside the group
    (a comparison of unrounded values would take another branch than eager). With `numerics="eager"`: all.
    """
    narrow = {v for n in inside for v in g.node[n].outputs if g.values[v].dtype in NARROW}
    if numerics == "eager":
        return frozenset(narrow)
    jumps = _reaching_jump(g, inside)
    return frozenset(v for v in narrow if v in jumps or g.producer[v].attr("user") is True)


def _reaching_jump(g: Graph, inside: frozenset[str]) -> frozenset[str]:
    """Values read, directly or through others of the group, by a discontinuous operator of it."""
    reach: set[str] = set()
    for n in reversed(g.nodes):
        if n.id not in inside:
            continue
        if OPS[n.op].discontinuous or any(v in reach for v in n.outputs):
            reach.update(n.inputs)
    return frozenset(reach)
