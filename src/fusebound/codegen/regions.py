"""The parts of a space in which piecewise operators have one piece, and what a kernel computes there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusebound.analysis.space import Space
from fusebound.codegen.sites import Needed, Site, Walker, segments
from fusebound.ir.graph import Graph
from fusebound.ir.ops import OPS

Bounds = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the outer space. Its rows fall into `parts`, each with a walker; `reductions` are those that
    its stores need: others may lie outside of their operands here."""

    segment: Bounds
    parts: tuple[Bounds, ...]
    walkers: tuple[Walker, ...]
    reductions: tuple[Needed, ...]


def regions(g: Graph, inside: frozenset[str], space: Space) -> tuple[list[Region], frozenset[str]]:
    """Every region that stores something, and the values of which some elements stay as they are in an input."""
    targets = {m.source: m.target for m in g.mutations}
    found, stay = _regions(g, inside, space, targets)
    return (found, stay) if found else _regions(g, inside, space, {})


def _regions(
    g: Graph, inside: frozenset[str], space: Space, targets: Mapping[str, str]
) -> tuple[list[Region], frozenset[str]]:
    forms: dict[tuple[Site, tuple[int, ...]], int] = {}
    outer = [v for v in range(len(space.dims)) if v not in space.reduced]
    parts = tuple(segments(space, sorted(space.reduced)))
    found: list[Region] = []
    stay: set[str] = set()
    for segment in segments(space, outer):
        walkers = tuple(Walker(g, inside, space, {**segment, **part}, forms, targets) for part in parts)
        stay.update(v for w in walkers for v in w.staying())
        if any(w.stores() for w in walkers):
            found.append(Region(segment, parts, walkers, _reductions(walkers, space)))
    return found, frozenset(stay)


def _reductions(walkers: Sequence[Walker], space: Space) -> tuple[Needed, ...]:
    """The reductions that stores lead to, in the order of the space; each runs over all walkers' parts."""
    found: dict[Site, Needed] = {}
    waiting = [[needed for _, needed in w.stores()] for w in walkers]
    while any(waiting):
        fresh: list[Needed] = []
        for w, targets in zip(walkers, waiting, strict=True):
            for n in w.order(targets):
                if n.site.kind == "node" and OPS[w.node(n.site).op].cls == "reduce" and n.site not in found:
                    over = tuple(r for r in n.ranges if r[0] not in space.reduced)
                    found[n.site] = Needed(n.site, over)
                    fresh.append(found[n.site])
        waiting = [[w.reduced(r) for r in fresh] for w in walkers]
    keys = (Site("node", node, at) for node, at in space.reductions)
    return tuple(found[k] for k in keys if k in found)
