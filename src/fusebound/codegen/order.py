"""The order in which a tile program adds: declared as data, so that it can be shown and held against the kernel.

One accumulator is `copies` vectors of `lanes` partial results. An unrolled loop deals its points to the copies in
turn, a vector at a time; what is left goes to the first copy. At the end neighbouring copies are combined pair by
pair, then the lower half of the lanes with the upper half until one is left, or a few lanes one after another. Where a
row is cut into chunks each is added up so, and their sums one after another. This is the order of `llvm._vector_loop`,
`reduction.finish` and `reduction.collect`, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from fusebound.codegen.tile import (
    Accumulate,
    Accumulator,
    Collect,
    Deposit,
    Finish,
    Kernel,
    Loop,
    Pass,
    Stmt,
    statements,
)

CHAIN = 4
"""Lanes that are combined one after another: no slower than a tree over a vector, and eager's order for such rows."""

Tree = int | tuple["Tree", "Tree"]
"""A sum: one element by its place in the row, or two sums added."""


@dataclass(frozen=True, slots=True)
class Order:
    """How `accumulator` combines `elements` values: `lanes` is 1 where every lane has a row of its own.

    `sweep` are the statements of its pass; an element's place is its position in the loops over the row, the last of
    which is innermost. `note` names the user's operator.
    """

    accumulator: Accumulator
    note: str
    elements: int
    lanes: int
    copies: int
    sweep: tuple[Stmt, ...]
    block: int = 0

    def __str__(self) -> str:
        a = self.accumulator
        head = f"a{a.id} {a.kind} of {self.elements}" + (f" ({self.note})" if self.note else "")
        if self.block:
            head += f", in {len(self._chunks())} chunks that are added one after another"
        if self.lanes == 1:
            return f"{head}: one after another, each lane a row of its own"
        cells = f"{self.copies} vectors of {self.lanes} lanes" if self.copies > 1 else f"{self.lanes} lanes"
        pairs = "vectors pair by pair, then " if self.copies > 1 else ""
        last = "lower with upper half of the lanes"
        if 0 < used_lanes(self.sweep, self.lanes) <= CHAIN:
            last = "the lanes one after another"
        return f"{head}: {cells}, one after another in each; {pairs}{last}"

    def tree(self, places: Container[int] | None = None) -> Tree | None:
        """The sum as a binary tree over places, all or some; None for no elements."""
        return reduce(_sum, (self._chunk(cut, places) for cut in self._chunks()))

    def _chunks(self) -> list[tuple[int, int]]:
        """The bounds of the loop that is cut, chunk by chunk."""
        loop = next((s for s in statements(self.sweep) if isinstance(s, Loop) and s.blocked), None)
        if loop is None:
            return [(0, 0)]
        return [(at, min(at + self.block, loop.hi)) for at in range(loop.lo, loop.hi, self.block)]

    def _chunk(self, cut: tuple[int, int], places: Container[int] | None) -> Tree | None:
        cells: dict[tuple[int, int], Tree] = {}
        for cell, place in self._visits(self.sweep, {}, cut):
            if places is None or place in places:
                cells[cell] = (cells[cell], place) if cell in cells else place
        vectors = [[cells.get((c, i)) for i in range(self.lanes)] for c in range(self.copies)]
        while len(vectors) > 1:
            vectors = [
                [_sum(x, y) for x, y in zip(a, b, strict=True)]
                for a, b in zip(vectors[::2], vectors[1::2], strict=True)
            ]
        lanes = vectors[0]
        if 0 < (used := used_lanes(self.sweep, self.lanes)) <= CHAIN:
            return reduce(_sum, lanes[:used])
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [_sum(x, y) for x, y in zip(lanes[:half], lanes[half:], strict=True)]
        return lanes[0]

    def _visits(
        self, body: Iterable[Stmt], at: dict[int, tuple[int, int]], cut: tuple[int, int]
    ) -> Iterator[tuple[tuple[int, int], int]]:
        """(copy, lane) and place of every element, in the order in which they are taken in.

        `at` holds a point of the loops around: its position and the loop's size.
        """
        for s in body:
            match s:
                case Loop():
                    lo, hi = cut if s.blocked else (s.lo, s.hi)
                    dealt = self.lanes > 1 and s.vector
                    for i in range(lo, hi):
                        at[s.var] = (i, self._extent(s.var))
                        own = _dealt(i - lo, hi - lo, self.lanes, s.copies) if dealt else None
                        for cell, place in self._visits(s.body, at, cut):
                            yield own or cell, place
                    at.pop(s.var, None)
                case Accumulate() if s.acc == self.accumulator.id:
                    place = 0
                    for i, n in at.values():
                        place = place * n + i
                    yield (0, 0), place
                case _:
                    pass

    def _extent(self, var: int) -> int:
        return max(s.hi for s in statements(self.sweep) if isinstance(s, Loop) and s.var == var)


def used_lanes(body: Sequence[Stmt], lanes: int) -> int:
    """How many lanes the vector loops over a row fill; 0 where there is none."""
    loops = (s for s in statements(body) if isinstance(s, Loop) and s.vector)
    return max((min(s.hi - s.lo, lanes) for s in loops), default=0)


def _dealt(i: int, n: int, lanes: int, copies: int) -> tuple[int, int]:
    """The copy and the lane of point i of a vector loop of n."""
    block = lanes * copies
    return (i % block // lanes if i < n - n % block else 0), i % lanes


def _sum(x: Tree | None, y: Tree | None) -> Tree | None:
    """What an accumulator holds that has taken nothing in changes no sum."""
    if x is None or y is None:
        return y if x is None else x
    return (x, y)


def orders(k: Kernel) -> Iterator[Order]:
    """The order of every sum and product of the program, nest by nest."""
    every = [s for nest in k.nests for s in statements(nest.body)]
    for nest in k.nests:
        found = list(statements(nest.body))
        notes = {s.acc: s.note for s in found if isinstance(s, Finish)}
        notes |= {k.parts[s.part].accumulator.id: s.note for s in every if isinstance(s, Collect)}
        block = next((k.parts[s.part].block for s in found if isinstance(s, Deposit)), 0)
        for s in found:
            if isinstance(s, Pass):
                sums = (a for a in s.accumulators if a.kind in ("sum", "prod"))
                yield from (_order(s, a, notes.get(a.id, ""), k.lanes, block) for a in sums)


def _order(p: Pass, a: Accumulator, note: str, lanes: int, block: int) -> Order:
    vectors = [s for s in statements(p.body) if isinstance(s, Loop) and s.vector]
    copies = max((s.copies for s in vectors), default=1)
    return Order(a, note, _points(p.body, a.id), lanes if vectors else 1, copies, p.body, block)


def _points(body: Sequence[Stmt], acc: int) -> int:
    """How many values an accumulator takes in."""
    total = 0
    for s in body:
        match s:
            case Loop():
                total += (s.hi - s.lo) * _points(s.body, acc)
            case Accumulate():
                total += s.acc == acc
            case _:
                pass
    return total
