"""Which loops a kernel has: axes merged where memory allows it, ordered, one of them a vector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from fusebound.analysis.space import Space
from fusebound.codegen import turned
from fusebound.codegen.strided import WIDEST
from fusebound.ir.maps import Affine

TILE = 1 << 14
"""Elements of work in one tile: enough to hide the cost of handing it to a thread."""
SHARES = 4
"""Few tiles are as many as a multiple of this, so that no thread of two or four has one more than another."""


@dataclass(frozen=True, slots=True)
class Access:
    """One memory access: its offset over the space's variables, and the bytes of an element."""

    offset: Affine
    itemsize: int
    store: bool


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of a kernel.

    `extent` gives each remaining variable's size; `into` maps a merged variable to the one that runs over it and the
    factor between them. `outer` and `inner` are in loop order; `vector` is one of them. `across` is the loop along
    which memory lies that is turned, -1 where none is; `turned` are the points of it and of the vector loop in a tile.
    """

    extent: Mapping[int, int]
    into: Mapping[int, tuple[int, int]]
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    vector: int
    across: int = -1
    turned: tuple[int, int] = (0, 0)

    def keep(self, e: Affine) -> Affine:
        """An expression without the variables that were merged away."""
        return Affine(e.const, tuple((v, c) for v, c in e.terms if v in self.extent))

    def has_columns(self, lanes: int) -> bool:
        """Whether each lane goes down a column of its own, with enough of them for vectors side by side."""
        many = self.extent.get(self.vector, 0) >= 8 * lanes > 8
        return bool(self.inner) and self.vector in self.outer and many

    def ranges(self, segment: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """The bounds of every loop within a segment of the space's variables."""
        out = {v: (0, n) for v, n in self.extent.items()}
        for v, (lo, hi) in segment.items():
            loop, scale = self.into.get(v, (v, 1))
            out[loop] = (lo * scale, hi * scale)
        return out


def choose(
    space: Space, accesses: Iterable[Access], others: Iterable[Affine], lanes: int, *, turning: bool
) -> Loops:
    """Merge, order and pick the vector loop. `others` are further expressions that merging must respect; `turning` says
    that tiles of memory can be turned.
    """
    accesses = list(accesses)
    used = {v for a in accesses for v in a.offset.vars} | {v for e in others for v in e.vars} | space.reduced
    extent = {v: space.dims[v] for v in sorted(used)}
    exprs = [a.offset for a in accesses] + list(others)
    into = _merge(space, exprs, extent)
    outer = [v for v in extent if v not in space.reduced]
    inner = [v for v in extent if v in space.reduced]
    turns = {v: _across(v, accesses, extent, outer, inner, lanes) if turning else -1 for v in extent}
    vector = min(extent, key=lambda v: (_cost(v, turns[v], accesses, extent, lanes), -v), default=-1)
    across = turns.get(vector, -1)
    by_store = _order(outer, [a for a in accesses if a.store] + accesses)
    by_load = _order(inner, [a for a in accesses if not a.store] + accesses)
    by_store = _last(_last(by_store, across), vector)
    count = sum(turned.is_turned(a.offset, vector, across) for a in accesses)
    tile = _turned_tile(vector, across, extent, outer, count, lanes) if count else (0, 0)
    return Loops(extent, into, by_store, _last(by_load, vector), vector, across, tile)


def _across(
    v: int, accesses: Iterable[Access], extent: Mapping[int, int], outer: Sequence[int], inner: Sequence[int],
    lanes: int,
) -> int:  # fmt: skip
    """The loop along which memory lies that is apart along `v`, where tiles of it can be turned; -1 for none."""
    if lanes == 1 or extent[v] < turned.LEAST or list(inner) not in ([], [v]):
        return -1
    for u in outer:
        count = sum(turned.is_turned(a.offset, v, u) for a in accesses)
        if u == v or not count or extent[u] < turned.LEAST:
            continue
        rows, columns = _turned_tile(v, u, extent, outer, count, lanes)
        if count * turned.room(rows, columns, lanes) <= turned.ROOM:
            return u
    return -1


def _turned_tile(
    v: int, u: int, extent: Mapping[int, int], outer: Sequence[int], count: int, lanes: int
) -> tuple[int, int]:
    """The points of `u` and of `v` in a tile: as many of `u` as leave enough tiles and fit, so that whole lines and
    more of a page are used at once; all of `v` where it is a row."""
    columns = min(extent[v], turned.COLUMNS) if v in outer else extent[v]
    others = prod(extent[x] for x in outer if x not in (u, v)) * -(-extent[v] // columns)
    for rows in (8 * lanes, 4 * lanes, 2 * lanes):
        enough = others * -(-extent[u] // rows) >= 4 * SHARES
        if enough and count * turned.room(rows, columns, lanes) <= turned.ROOM:
            return rows, columns
    return lanes, columns


def _merge(space: Space, exprs: list[Affine], extent: dict[int, int]) -> dict[int, tuple[int, int]]:
    into: dict[int, tuple[int, int]] = {}
    cut = set(space.cuts)
    again = True
    while again:
        again = False
        for a in list(extent):
            for b in list(extent):
                if a == b or b in cut or (a in space.reduced) != (b in space.reduced):
                    continue
                if any(e.coef(a) != e.coef(b) * extent[b] for e in exprs):
                    continue
                size = extent[b]
                for v, (loop, scale) in list(into.items()):
                    if loop == a:
                        into[v] = (b, scale * size)
                into[a] = (b, size)
                extent[b] *= extent.pop(a)
                if a in cut:
                    cut.add(b)
                again = True
                break
            if again:
                break
    return into


def _cost(v: int, across: int, accesses: list[Access], extent: Mapping[int, int], lanes: int) -> float:
    """Rough cycles per element when `v` is the vector loop: contiguous 1, broadcast 0, shuffled 2–4, turned 3,
    scattered 8–12."""
    total = 0.0
    for a in accesses:
        c = a.offset.coef(v)
        if c < 0 or c > WIDEST:
            c = 3.0 if turned.is_turned(a.offset, v, across) else 12.0 if a.store else 8.0
        total += a.itemsize * c
    waste = -(-extent[v] // lanes) * lanes / extent[v]
    return (total + 1.0) * waste


def _order(variables: list[int], accesses: list[Access]) -> list[int]:
    """Outermost first: the order in which the first access that has a variable steps through memory."""

    def key(v: int) -> tuple[int, ...]:
        return tuple(-abs(a.offset.coef(v)) for a in accesses)

    return sorted(variables, key=key)


def _last(order: Iterable[int], v: int) -> tuple[int, ...]:
    order = list(order)
    return (*(x for x in order if x != v), *((v,) if v in order else ()))


def _even(n: int, block: int) -> int:
    """A block that cuts n points into equal parts, few of them in a number that threads can share."""
    parts = -(-n // block)
    if 1 < parts < 4 * SHARES:
        parts = -(-parts // SHARES) * SHARES
    return -(-n // parts)


def blocks(
    loops: Loops, ranges: Mapping[int, tuple[int, int]], lanes: int, across: int = -1
) -> list[tuple[int, int]]:
    """How many points of each outer loop one tile holds: pairs (variable, block), block 1 means fixed in the tile.

    Loops that fit entirely are left out of the result: they run inside the tile.
    """
    if across >= 0:
        rows, columns = loops.turned
        sizes = {across: rows, loops.vector: columns}
        whole = {v for v in (loops.vector,) if ranges[v][1] - ranges[v][0] <= columns}
        return [(v, sizes.get(v, 1)) for v in loops.outer if v not in whole]
    work = prod(hi - lo for v in loops.inner for lo, hi in (ranges[v],))
    rest = list(loops.outer)
    while rest:
        v = rest[-1]
        lo, hi = ranges[v]
        n = hi - lo
        if work * n > TILE or len(rest) == 1:
            block = _even(n, min(n, max(1, -(-TILE // work))))
            if v == loops.vector:
                unit = lanes if loops.inner else 4 * lanes
                block = -(-block // unit) * unit
            return [(x, 1) for x in rest[:-1]] + [(v, block)]
        work *= n
        rest.pop()
    return []
