"""Which values a kernel keeps from one pass over a row to the next, instead of computing them again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from fusebound.analysis.space import Space
from fusebound.codegen.sites import Needed, Site, Walker
from fusebound.ir.ops import OPS

WORTH = 4
"""Vector instructions above which recomputing costs more than a store and a load in the first-level cache."""
LOAD = 3
ROW_BYTES = 1 << 17
"""Scratch of one row at most: an eighth of a usual second-level cache, and far below a thread's stack."""


def kept_sites(
    walkers: Sequence[Walker],
    passes: Sequence[dict[Site, Needed]],
    space: Space,
    depends: Callable[[Walker, Needed], frozenset[int]],
) -> dict[Site, int]:
    """Sites kept in scratch, numbered. A site is kept when two passes need it and it is dear to recompute."""
    row = prod(space.dims[v] for v in space.reduced)
    if len(passes) < 2 or row * 4 > ROW_BYTES:
        return {}
    kept: dict[Site, int] = {}
    for later in range(1, len(passes)):
        earlier = {s for p in passes[:later] for s in p}
        for w in walkers:
            _visit(w, passes[later], earlier, kept, space, depends)
    used = len(kept) * row * 4
    return kept if used <= ROW_BYTES else {}


def _visit(
    w: Walker,
    needed: dict[Site, Needed],
    earlier: set[Site],
    kept: dict[Site, int],
    space: Space,
    depends: Callable[[Walker, Needed], frozenset[int]],
) -> None:
    consumed = {o.site for n in needed.values() for o in w.operands(n) if n.site not in earlier}
    roots = [
        n for n in needed.values() if n.site in earlier and (n.site in consumed or not _used(w, n, needed))
    ]
    for n in roots:
        varies = depends(w, n) & space.reduced
        if n.site.kind == "node" and varies and _price(w, n, space, depends, {}) >= WORTH:
            kept.setdefault(n.site, len(kept))


def _used(w: Walker, n: Needed, needed: dict[Site, Needed]) -> bool:
    return any(o.site == n.site for m in needed.values() for o in w.operands(m))


def _price(
    w: Walker,
    n: Needed,
    space: Space,
    depends: Callable[[Walker, Needed], frozenset[int]],
    seen: dict[Site, int],
) -> int:
    """Instructions to evaluate a site once per point, what the row's start determines left out."""
    if n.site in seen or not depends(w, n) & space.reduced:
        return 0
    seen[n.site] = 1
    if n.site.kind == "load":
        return LOAD if sum(s.kind == "load" for s in seen) > 1 else 0
    node = w.node(n.site)
    own = LOAD * 3 if OPS[node.op].cls == "gather" else OPS[node.op].flops
    return own + sum(_price(w, o, space, depends, seen) for o in w.operands(n))
