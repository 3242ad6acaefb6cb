"""Which loops a kernel has: axes merged where memory allows it, ordered, one of them a vector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from fusebound.analysis.space import Space
from fusebound.ir.maps import Affine

TILE = 1 << 14
"""Elements of work in one tile: enough to hide the cost of handing it to a thread."""


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
    factor between them. `outer` and `inner` are in loop order; `vector` is one of them.
    """

    extent: Mapping[int, int]
    into: Mapping[int, tuple[int, int]]
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    vector: int

    def keep(self, e: Affine) -> Affine:
        """An expression without the variables that were merged away."""
        return Affine(e.const, tuple((v, c) for v, c in e.terms if v in self.extent))

    def ranges(self, segment: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """The bounds of every loop within a segment of the space's variables."""
        out = {v: (0, n) for v, n in self.extent.items()}
        for v, (lo, hi) in segment.items():
            loop, scale = self.into.get(v, (v, 1))
            out[loop] = (lo * scale, hi * scale)
        return out


def choose(space: Space, accesses: Iterable[Access], others: Iterable[Affine], lanes: int) -> Loops:
    """Merge, order and pick the vector loop. `others` are further expressions that merging must respect."""
    accesses = list(accesses)
    used = {v for a in accesses for v in a.offset.vars} | {v for e in others for v in e.vars} | space.reduced
    extent = {v: space.dims[v] for v in sorted(used)}
    exprs = [a.offset for a in accesses] + list(others)
    into = _merge(space, exprs, extent)
    vector = min(extent, key=lambda v: (_cost(v, accesses, extent, lanes), -v), default=-1)
    outer = [v for v in extent if v not in space.reduced]
    inner = [v for v in extent if v in space.reduced]
    by_store = _order(outer, [a for a in accesses if a.store] + accesses)
    by_load = _order(inner, [a for a in accesses if not a.store] + accesses)
    return Loops(extent, into, _last(by_store, vector), _last(by_load, vector), vector)


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


def _cost(v: int, accesses: list[Access], extent: Mapping[int, int], lanes: int) -> float:
    """Rough cycles per element when `v` is the vector loop: contiguous 1, broadcast 0, scattered 8–12."""
    total = 0.0
    for a in accesses:
        c = abs(a.offset.coef(v))
        total += a.itemsize * (0.0 if c == 0 else 1.0 if a.offset.coef(v) == 1 else 12.0 if a.store else 8.0)
    waste = -(-extent[v] // lanes) * lanes / extent[v]
    return (total + 1.0) * waste


def _order(variables: list[int], accesses: list[Access]) -> list[int]:
    """Outermost first: the order in which the first access that has a variable steps through memory."""

    def key(v: int) -> tuple[int, ...]:
        return tuple(-abs(a.offset.coef(v)) for a in accesses)

    return sorted(variables, key=key)


def _last(order: list[int], v: int) -> tuple[int, ...]:
    return (*(x for x in order if x != v), *((v,) if v in order else ()))


def blocks(loops: Loops, ranges: Mapping[int, tuple[int, int]], lanes: int) -> list[tuple[int, int]]:
    """How many points of each outer loop one tile holds: pairs (variable, block), block 1 means fixed in the tile.

    Loops that fit entirely are left out of the result: they run inside the tile.
    """
    work = prod(hi - lo for v in loops.inner for lo, hi in (ranges[v],))
    rest = list(loops.outer)
    while rest:
        v = rest[-1]
        lo, hi = ranges[v]
        n = hi - lo
        if work * n > TILE or len(rest) == 1:
            block = min(n, max(1, -(-TILE // work)))
            if v == loops.vector:
                block = -(-block // (4 * lanes)) * 4 * lanes
            return [(x, 1) for x in rest[:-1]] + [(v, block)]
        work *= n
        rest.pop()
    return []
