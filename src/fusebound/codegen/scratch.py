"""Which values a kernel keeps from one pass over a row to the next, instead of computing them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from fusebound.analysis.space import Space
from fusebound.codegen.sites import Needed, Site, Walker
from fusebound.codegen.strided import WIDEST
from fusebound.codegen.turned import is_turned
from fusebound.ir.ops import OPS

WORTH = 4
"""Vector instructions above which recomputing costs more than a store and a load in the first-level cache."""
LOAD = 3
STRIDED = 12
"""A vector of elements that do not lie side by side is gathered: dearer than any scratch."""
ROW_BYTES = 1 << 17
"""Scratch of one row at most: an eighth of a usual second-level cache, and far below a thread's stack."""


def kept_sites(
    passes: Sequence[tuple[Walker, Sequence[dict[Site, Needed]]]],
    space: Space,
    depends: Callable[[Walker, Needed], frozenset[int]],
    vector: int,
    across: int,
) -> dict[Site, int]:
    """Sites kept in scratch, numbered. A site is kept when two passes need it and it is dear to recompute.

    `passes` lists what each pass needs, for the walker of every part of the space; `vector` is the variable
    of the vector loop, `across` that along which tiles are turned.
    """
    row = prod(space.dims[v] for v in space.reduced)
    if space.stages < 2 or row * 4 > ROW_BYTES:
        return {}
    kept: dict[Site, int] = {}
    for w, tables in passes:
        prices = _Prices(w, space, depends, vector, across)
        for later in range(1, len(tables)):
            earlier = {s for table in tables[:later] for s in table}
            _visit(w, tables[later], earlier, kept, prices)
    used = len(kept) * row * 4
    return kept if used <= ROW_BYTES else {}


@dataclass(frozen=True, slots=True)
class _Prices:
    """What a site costs per point, with what the row's start determines left out."""

    walker: Walker
    space: Space
    depends: Callable[[Walker, Needed], frozenset[int]]
    vector: int
    across: int

    def varies(self, n: Needed) -> bool:
        return bool(self.depends(self.walker, n) & self.space.reduced)

    def price(self, n: Needed, seen: set[Site]) -> int:
        """Instructions of a site and of what it reads, each counted once over `seen`."""
        if n.site in seen or not self.varies(n):
            return 0
        first = not any(s.kind == "load" for s in seen)
        seen.add(n.site)
        if n.site.kind == "load":
            offset = self.walker.offset(n.site)
            apart = 1 if is_turned(offset, self.vector, self.across) else offset.coef(self.vector)
            near = 0 <= apart <= WIDEST
            return STRIDED if not near else 0 if first and apart <= 1 else LOAD * max(apart, 1)
        node = self.walker.node(n.site)
        own = STRIDED if OPS[node.op].cls == "gather" else OPS[node.op].flops
        return own + sum(self.price(o, seen) for o in self.walker.operands(n))


def _visit(
    w: Walker, needed: dict[Site, Needed], earlier: set[Site], kept: dict[Site, int], prices: _Prices
) -> None:
    """Keep the sites of earlier passes that this pass reads first-hand and that are worth it."""
    consumed = {o.site for n in needed.values() for o in w.operands(n) if n.site not in earlier}
    read = {o.site for n in needed.values() for o in w.operands(n)}
    for n in needed.values():
        if n.site not in earlier or (n.site in read and n.site not in consumed):
            continue
        if prices.varies(n) and prices.price(n, set()) >= WORTH:
            kept.setdefault(n.site, len(kept))
