"""What one row of a reduction must keep on chip."""

from __future__ import annotations

from collections.abc import Collection

from fusebound.analysis.numerics import reduces
from fusebound.analysis.space import Space
from fusebound.ir.graph import Graph


def row_scratch(g: Graph, nodes: Collection[str], space: Space) -> int:
    """Bytes of a row that is walked again after one of its reductions; 0 where a single pass is enough.

    A sum alone forgets its row; softmax needs it again for the division.
    """
    return space.scratch_bytes if _walks_again(g, nodes, space) else 0


def _walks_again(g: Graph, nodes: Collection[str], space: Space) -> bool:
    """Whether a value as large as a reduced operand depends on a reduction."""
    rows = [g.values[g.node[i].inputs[0]].numel for i in nodes if reduces(g, (i,))]
    late = [g.values[v].numel for i in nodes for v in g.node[i].outputs if space.depth.get(v, 0) > 0]
    return bool(rows) and max(late, default=0) >= min(rows)
