"""What is computed once before a loop instead of in each of its rounds: chains over the parameters of a channel.

`1/√(var + eps) · weight` of a batch norm depends on the channel alone. In a loop over pixels around one over channels
it would be computed anew for every pixel; in one over channels around pixels, one channel at a time, without vectors.
Such a chain gets a vector loop of its own before the loop that is opened, and scratch from which it is recalled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fusebound.codegen.sites import Needed, Walker
from fusebound.ir.ops import OPS

WORTH = 8
"""Vector instructions of a chain from which on a loop of its own pays."""
ROUNDS = 4
"""Rounds of the loop that is opened from which on a chain that does not depend on it is staged."""
LONGEST = 1 << 13
"""Elements staged of one value at most: 32 KiB, which stay in the first-level cache beside a row."""


def chains(
    w: Walker, targets: Iterable[Needed], var: int, bound: frozenset[int],
    depends: Callable[[Walker, Needed], frozenset[int]],
) -> list[tuple[Needed, int]]:  # fmt: skip
    """The last sites of the chains that depend on `var` and on nothing else that is not bound, each with its price.

    A chain is made of elementwise primitives on elements that lie side by side along `var`, or on what is bound.
    """
    order = w.order(targets)
    staged: dict[Needed, int] = {}
    wanted: set[Needed] = set(targets)
    for n in order:
        if (price := _price(w, n, var, bound, depends, staged)) is not None:
            staged[n] = price
        else:
            wanted.update(w.operands(n))
    return [(n, price) for n, price in staged.items() if n in wanted and price >= WORTH]


def _price(
    w: Walker, n: Needed, var: int, bound: frozenset[int],
    depends: Callable[[Walker, Needed], frozenset[int]], staged: dict[Needed, int],
) -> int | None:  # fmt: skip
    """Instructions of a site's chain, or None for a site that belongs to none."""
    deps = depends(w, n)
    if var not in deps or not deps <= bound | {var}:
        return None
    if n.site.kind == "load":
        return 0 if w.offset(n.site).coef(var) == 1 else None
    if n.site.kind != "node" or OPS[w.node(n.site).op].cls != "pointwise" or w.node(n.site).op == "iota":
        return None
    own = OPS[w.node(n.site).op].flops
    for o in w.operands(n):
        if var in depends(w, o):
            if o not in staged:
                return None
            own += staged[o]
    return own
