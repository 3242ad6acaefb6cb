"""The evaluations that a kernel makes: primitives and loads at positions of the space, moves seen through."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from fusebound.analysis.resolve import Ranges, Resolver, Use
from fusebound.analysis.space import Space, Store
from fusebound.ir.graph import Graph, Node
from fusebound.ir.maps import Affine, Index, linear
from fusebound.ir.ops import OPS


@dataclass(frozen=True, slots=True)
class Site:
    """One evaluation: a primitive (`node`), a read of memory (`load`) or a constant (`fill`) at a position."""

    kind: str
    id: str
    at: Index
    fill: float | int | bool = 0


@dataclass(frozen=True, slots=True)
class Needed:
    """A site together with the restrictions under which its position was derived."""

    site: Site
    ranges: Ranges


class Walker:
    """Expands sites within one segment of the space, so that piecewise operators have one piece.

    `deps` is the lowering's table of the variables on which each site depends, filled as it asks. `forms`
    numbers the distinct evaluations of all walkers of a kernel: a site may read other operands in another
    segment. `targets` are the inputs that results become, which already hold what does not change.
    """

    def __init__(
        self, g: Graph, inside: frozenset[str], space: Space, segment: Mapping[int, tuple[int, int]],
        forms: dict[tuple[Site, tuple[int, ...]], int], targets: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.g = g
        self.inside = inside
        self.space = space
        self.segment = segment
        self._targets = targets
        self._resolver = Resolver(g, space.dims, space.reductions)
        self.deps: dict[Site, frozenset[int]] = {}
        self._operands: dict[Needed, tuple[Needed, ...]] = {}
        self._forms = forms
        self._form: dict[Site, int] = {}

    def node(self, site: Site) -> Node:
        return self.g.node[site.id]

    def admits(self, ranges: Ranges) -> bool:
        """Whether this segment lies inside the ranges."""
        for v, lo, hi in ranges:
            a, b = self.segment.get(v, (0, self.space.dims[v]))
            if a < lo or b > hi:
                return False
        return True

    def source(self, value: str, at: Index, ranges: Ranges) -> Needed:
        """The site that computes a value at a position, moves seen through."""
        while True:
            n = self.g.producer.get(value)
            if n is None or n.id not in self.inside:
                return Needed(Site("load", value, at), ranges)
            if OPS[n.op].cls != "move":
                return Needed(Site("node", n.id, at), ranges)
            use = self._piece(n, at, ranges)
            if use.operand is None:
                return Needed(Site("fill", n.out, (), use.fill), ranges)
            value, at, ranges = n.inputs[use.operand], use.index, use.ranges

    def operands(self, needed: Needed) -> tuple[Needed, ...]:
        """The sites that a site reads in the same pass (a reduction's operand belongs to an earlier one)."""
        found = self._operands.get(needed)
        if found is None:
            found = self._operands[needed] = tuple(self._expand(needed))
        return found

    def form(self, needed: Needed) -> int:
        """A number that two evaluations share when they compute the same from the same."""
        found = self._form.get(needed.site)
        if found is None:
            key = needed.site, tuple(self.form(o) for o in self.operands(needed))
            found = self._form[needed.site] = self._forms.setdefault(key, len(self._forms))
        return found

    def stores(self) -> list[tuple[Store, Needed]]:
        """What this segment stores, each with the site of its value."""
        return [(s, needed) for s, needed in self._results() if not self._stays(s, needed)]

    def staying(self) -> Iterator[str]:
        """Results that have here what the input has that becomes them: they are not stored."""
        return (s.value for s, needed in self._results() if self._stays(s, needed))

    def _results(self) -> Iterator[tuple[Store, Needed]]:
        found = (s for s in self.space.stores if self.admits(s.ranges))
        return ((s, self.source(s.value, s.index, s.ranges)) for s in found)

    def _stays(self, s: Store, needed: Needed) -> bool:
        target = self._targets.get(s.value)
        return target is not None and needed.site == Site("load", target, s.index)

    def reduced(self, needed: Needed) -> Needed:
        """The site that a reduction accumulates."""
        n = self.node(needed.site)
        return self.source(n.inputs[0], self.space.reductions[n.id, needed.site.at], needed.ranges)

    def offset(self, site: Site) -> Affine:
        """A load's offset in elements; for a gather, its source's offset without the index."""
        if site.kind == "load":
            value, at = self.g.values[site.id], site.at
        else:
            n = self.node(site)
            value, at = self.g.values[n.inputs[0]], self._resolver.source_at(n, site.at)
        return linear(at, [s for s in value.strides if isinstance(s, int)])

    def order(self, targets: Iterable[Needed], given: Container[int] = ()) -> list[Needed]:
        """All sites that the targets need, operands first, each once; those of the forms `given` need no operands."""
        done: dict[Site, Needed] = {}
        stack: list[tuple[Needed, bool]] = [(t, False) for t in reversed(list(targets))]
        while stack:
            needed, expanded = stack.pop()
            if needed.site in done:
                continue
            if expanded:
                done[needed.site] = needed
                self.form(needed)
                continue
            stack.append((needed, True))
            if not given or self.form(needed) not in given:
                stack.extend((o, False) for o in reversed(self.operands(needed)))
        return list(done.values())

    def _expand(self, needed: Needed) -> list[Needed]:
        site = needed.site
        if site.kind != "node" or OPS[self.node(site).op].cls == "reduce":
            return []
        n = self.node(site)
        uses = self._resolver.uses(n, site.at, needed.ranges) if n.inputs else []
        return [self.source(n.inputs[u.operand], u.index, u.ranges) for u in uses if u.operand is not None]

    def _piece(self, n: Node, at: Index, ranges: Ranges) -> Use:
        uses = self._resolver.uses(n, at, ranges)
        if len(uses) == 1:
            return uses[0]
        return next(u for u in uses if self.admits(u.ranges))


def segments(space: Space, variables: Iterable[int]) -> list[dict[int, tuple[int, int]]]:
    """The parts into which `cuts` divide the loops over some variables."""
    parts: list[dict[int, tuple[int, int]]] = [{}]
    for v in variables:
        points = (0, *space.cuts.get(v, ()), space.dims[v])
        if len(points) > 2:
            parts = [{**p, v: (a, b)} for p in parts for a, b in pairwise(points)]
    return parts
