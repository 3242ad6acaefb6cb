"""Accesses along an axis that memory has apart: tiles of a block of rows are turned in registers.

Where the vector loop is strided in an access, the elements may lie side by side along another loop, `across`. For a
block of as many points of that loop as a vector has lanes, square tiles are loaded whole, transposed by shuffles and
kept in scratch, from which the rows are recalled. What is stored so goes the other way when the block is done.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.llvm_types import bits, elem, lanes
from fusebound.codegen.strided import WIDEST
from fusebound.ir.maps import Affine

LEAST = 8
"""Points of both loops from which on tiles are turned: in smaller ones most lanes would be idle."""
COLUMNS = 64
"""Points of the vector loop in a tile, where it is no row that stays whole."""
ROOM = 1 << 18
"""Bytes of all turned blocks at most: they stay in a second-level cache."""


def is_turned(offset: Affine, vector: int, across: int) -> bool:
    """Whether an access is turned: apart along the vector loop, side by side along the other."""
    return offset.coef(vector) > WIDEST and offset.coef(across) == 1


def room(rows: int, columns: int, lanes: int) -> int:
    """Bytes of a block of float32 in scratch."""
    return rows * (columns + lanes) * 4


def transposed(fn: Fn, rows: Sequence[Reg]) -> list[Reg]:
    """The columns of a square tile: first within the 128-bit lanes of as many rows as a lane has elements, by
    instructions that interleave halves, then whole lanes."""
    n = len(rows)
    lane = max(min(128 // bits(elem(rows[0].type)), n), 1)
    groups = [_shuffled(fn, rows[i : i + lane], 1, lane) for i in range(0, n, lane)]
    columns = [_lanes(fn, [group[j] for group in groups], lane) for j in range(lane)]
    return [columns[i % lane][i // lane] for i in range(n)]


def _shuffled(fn: Fn, rows: Sequence[Reg], unit: int, span: int) -> list[Reg]:
    """The columns of rows of units, in every span by itself: each step interleaves the halves of the rows."""
    n, half = lanes(rows[0].type), len(rows) // 2
    found, step = list(rows), 1
    while step < len(rows):
        pairs = zip(found[:half], found[half:], strict=True)
        found = [
            fn.shuffle(a, b, [_source(i, n, unit, span, side) for i in range(n)])
            for a, b in pairs
            for side in (0, span // 2)
        ]
        step *= 2
    return found


def _source(i: int, n: int, unit: int, span: int, side: int) -> int:
    """Which of the elements of two vectors of n lies at place i when the halves of their spans are interleaved."""
    start, (at, rest) = i - i % span, divmod(i % span, unit)
    return start + side + at // 2 * unit + rest + (n if at % 2 else 0)


def _lanes(fn: Fn, rows: Sequence[Reg], lane: int) -> list[Reg]:
    """The columns of rows of lanes. Four lanes are not interleaved: the instruction that takes the lower ones of its
    result from one operand and the others from the next is the faster."""
    if len(rows) != 4:
        return _shuffled(fn, rows, lane, lane * len(rows))

    def picked(a: Reg, b: Reg, which: Sequence[int]) -> Reg:
        at = [x for side in (0, len(rows)) for x in (w + side for w in which)]
        return fn.shuffle(a, b, [x * lane + i for x in at for i in range(lane)])

    first = [picked(rows[0], rows[1], half) for half in ((0, 1), (2, 3))]
    last = [picked(rows[2], rows[3], half) for half in ((0, 1), (2, 3))]
    return [picked(a, b, which) for a, b in zip(first, last, strict=True) for which in ((0, 2), (1, 3))]
