"""Peak memory of a schedule."""

from __future__ import annotations

from collections.abc import Sequence

from fusebound.analysis.alias import storages
from fusebound.analysis.group import boundary
from fusebound.ir.graph import Graph


def peak_bytes(g: Graph, steps: Sequence[frozenset[str]]) -> int:
    """Largest sum, over the steps, of the bytes that computed values hold (graph inputs are the caller's).

    `steps` are the node sets of a plan's groups in execution order; views own no memory.
    """
    owner = storages(g).base
    last: dict[str, int] = {}
    made: list[set[str]] = []
    for k, nodes in enumerate(steps):
        reads, writes = boundary(g, nodes)
        for v in reads:
            last[owner[v]] = k
        made.append({v for v in writes if owner[v] == v})
    for v in g.escaping:
        last[owner[v]] = len(steps)
    live: set[str] = set()
    peak = 0
    for k, new in enumerate(made):
        live |= new
        peak = max(peak, sum(g.values[v].nbytes for v in live))
        live = {v for v in live if last.get(v, -1) > k}
    return peak
