"""Rows that are too few for the threads and too long for one: cut into chunks, which are tiles.

A kernel whose rows are cut runs in phases. In each, tiles take a pass over their chunks and leave what they
accumulated; in the next, every tile collects what the chunks left, in their order, and goes on with its own. Where rows
are cut follows from shapes alone, and so does the order of every sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from fusebound.codegen.loops import TILE, Loops

FEW = 8
"""Tiles from which on rows are left whole."""
MOST = 64
"""Chunks of a row at most: every tile of the next phase collects them."""
SHARED = 1 << 15
"""Partial results of one reduction at most: they lie on the stack of the calling thread."""


@dataclass(frozen=True, slots=True)
class Split:
    """The loop over `var`, which is cut into `chunks` blocks of so many points."""

    var: int
    block: int
    chunks: int


def split(
    loops: Loops, ranges: Mapping[int, tuple[int, int]], cut: Sequence[tuple[int, int]], lanes: int
) -> Split | None:
    """How the rows of a nest are cut whose tiles are `cut` (`loops.blocks`), or None for rows that are left whole."""
    size = {v: hi - lo for v, (lo, hi) in ranges.items()}
    rows, row = prod(size[v] for v in loops.outer), prod(size[v] for v in loops.inner)
    tiles = prod(-(-size[v] // block) for v, block in cut)
    if not loops.inner or tiles >= FEW or rows * row < FEW * TILE:
        return None
    var = max(loops.inner, key=lambda v: size[v])
    least = -(-TILE * tiles * size[var] // (rows * row))
    block = max(least, -(-size[var] // MOST), 2)
    if var == loops.vector:
        block = -(-block // (4 * lanes)) * 4 * lanes
    chunks = -(-size[var] // block)
    return Split(var, block, chunks) if 1 < chunks <= SHARED // rows else None
