"""WAR: an in-place write of a storage against the reads of it, by their index maps.

WAW is none: each version of a tensor is a value with memory of its own, and only the last is written into the input.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from fusebound.analysis.access import Region, ints, whole
from fusebound.analysis.group import in_order
from fusebound.analysis.resolve import NeedSplit, Ranges, Resolver, Unresolved, interval
from fusebound.ir.graph import Graph, Node, hint
from fusebound.ir.maps import Affine, Index, identity, show
from fusebound.ir.ops import spec_of

MAX_POINTS = 2000
"""Points looked at before the search ends without an answer (F108)."""


@dataclass(frozen=True, slots=True)
class Hazard:
    """Why a kernel may not write `storage` in place; `read` and `write` show the two index maps."""

    storage: str
    message: str
    read: str
    write: str
    nodes: tuple[str, ...]
    counterfactual: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """Why it is not known whether a kernel may write `storage` in place, after `points` reads were looked at."""

    storage: str
    message: str
    points: int
    nodes: tuple[str, ...]


def hazard(g: Graph, nodes: Collection[str]) -> Hazard | Undecided | None:
    """The first WAR inside a group; without one, the first search that ended without an answer; None where there is no
    hazard. The kernel writes a mutated input where it makes its new value."""
    inside = frozenset(nodes)
    undecided: Undecided | None = None
    for m in g.mutations:
        maker = g.producer.get(m.source)
        if maker is None or maker.id not in inside:
            continue
        match _war(g, inside, m.target, maker):
            case Hazard() as found:
                return found
            case Undecided() as found:
                undecided = undecided or found
            case None:
                pass
    return undecided


def _war(g: Graph, inside: frozenset[str], target: str, maker: Node) -> Hazard | Undecided | None:
    """A read of the target at other points than those that the same iteration writes."""
    rank = len(g.values[target].shape)
    walk = _Reads(g, inside, target, [hint(d) for d in g.values[maker.out].shape])
    found = walk.first_moved(maker, identity(rank))
    if not isinstance(found, _Moved):
        return found
    how = f"{_HOW.get(found.node.op, 'at other points')} at {found.index}"
    writer, reader = g.user[maker.user], g.user[found.node.user]
    text = (
        f"{writer.label} writes {target} in place while {reader.label} reads it {how}: "
        f"an iteration would read what another has already written"
    )
    flip = f"write the result to a new tensor instead of {writer.written or writer.target}"
    write = show(identity(rank))
    return Hazard(target, text, found.index, write, (found.node.id, maker.id), flip)


_HOW = {"slice": "sliced", "flip": "flipped", "permute": "permuted", "cat": "shifted", "pad": "shifted",
        "gather": "by data", "index_select": "by data"}  # fmt: skip
_BY_DATA = ("gather", "index_select")


@dataclass(frozen=True, slots=True)
class _Moved:
    node: Node
    index: str


@dataclass(slots=True)
class _Reads:
    """A walk from a written point back to every point of `target` that it needs.

    Variables from `len(shape)` on belong to reductions: their whole row is read before any of it is written,
    so that an axis that they alone run over does not count as moved.
    """

    g: Graph
    inside: frozenset[str]
    target: str
    sizes: list[int]
    reductions: dict[tuple[str, Index], Index] = field(default_factory=dict[tuple[str, Index], Index])
    seen: set[tuple[str, Index, Ranges]] = field(default_factory=set[tuple[str, Index, Ranges]])

    def first_moved(self, maker: Node, written: Index) -> _Moved | Undecided | None:
        """The first read of an element of the target that another point changes, or None."""
        changed = _changed(self.g, maker, self.target)
        stems = self._stems()
        undecided: Undecided | None = None
        stack: list[tuple[Node, Index, Ranges, Node]] = [(maker, written, (), maker)]
        while stack:
            n, at, ranges, mover = stack.pop()
            if len(self.seen) >= MAX_POINTS:
                return undecided or self._undecided(n, f"at more than {MAX_POINTS} points")
            mover = n if n.op in _HOW else mover
            if n.op in _BY_DATA and n.inputs[0] in stems:
                return _Moved(n, "points known at run time")
            try:
                uses = self._uses(n, at, ranges)
            except NeedSplit:
                return _Moved(n, "points that no one loop counts")
            except Unresolved as why:
                undecided = undecided or self._undecided(n, f"where {why.message}")
                continue
            for v, index, part in uses:
                moved = v == self.target and self._elsewhere(index, written, part)
                if moved and self._meets(index, part, changed):
                    return _Moved(mover, show(index))
                if v in stems and v != self.target and (v, index, part) not in self.seen:
                    self.seen.add((v, index, part))
                    stack.append((self.g.producer[v], index, part, mover))
        return undecided

    def _stems(self) -> frozenset[str]:
        """The target and what the group computes from it: no other value reads it."""
        found = {self.target}
        for n in in_order(self.g, self.inside):
            if not found.isdisjoint(n.inputs):
                found.update(n.outputs)
        return frozenset(found)

    def _undecided(self, n: Node, where: str) -> Undecided:
        reader = self.g.user[n.user].label
        what = f"{reader} reads what is made of it {where}: not all were compared"
        text = f"{self.target} is written in place, and {what}"
        return Undecided(self.target, text, len(self.seen), (n.id,))

    def _uses(self, n: Node, at: Index, ranges: Ranges) -> list[tuple[str, Index, Ranges]]:
        spec = spec_of(n.op)
        if spec is not None and spec.cls == "reduce":
            self.reductions.setdefault((n.id, at), self._reduced(n, at))
        uses = Resolver(self.g, tuple(self.sizes), self.reductions).uses(n, at, ranges)
        return [(n.inputs[u.operand], u.index, u.ranges) for u in uses if u.operand is not None]

    def _reduced(self, n: Node, at: Index) -> Index:
        kept = iter(at)
        axes = ints(n.attr("axes"))
        shape = self.g.values[n.inputs[0]].shape
        return tuple(self._fresh(hint(d)) if k in axes else next(kept) for k, d in enumerate(shape))

    def _fresh(self, size: int) -> Affine:
        self.sizes.append(size)
        return Affine.var(len(self.sizes) - 1)

    def _meets(self, index: Index, part: Ranges, changed: Region) -> bool:
        """Whether a read may be of elements in the region that changes."""
        for e, (start, count, step) in zip(index, changed, strict=True):
            low, high = interval(e, part, tuple(self.sizes))
            if high < start or low > start + (count - 1) * step:
                return False
        return True

    def _elsewhere(self, index: Index, written: Index, part: Ranges) -> bool:
        """Whether a read lies at another point along an axis, or may: a reduction's variable beside one of the written
        point's (`x.view(-1, 2).sum(1)`) leads out of the row."""
        rank, shape = len(written), self.g.values[self.target].shape
        axes = zip(index, written, shape, strict=True)
        return any(
            n != 1 and not (e.vars and min(e.vars) >= rank) and self._differ(e, w, part) for e, w, n in axes
        )

    def _differ(self, e: Affine, w: Affine, part: Ranges) -> bool:
        """Whether two expressions may differ where variables are in `part`: 0 and i do not for i in [0, 1)."""
        return interval(e + w * -1, part, tuple(self.sizes)) != (0, 0)


def _changed(g: Graph, maker: Node, target: str) -> Region:
    """The points of `target` at which `maker`'s result may differ from it: the slice of a slice assignment to it, else
    everything."""
    region = list(whole(g.values[target]))
    if maker.op == "slice_scatter" and maker.inputs[0] == target:
        dim, start, step = maker.attr("dim"), maker.attr("start"), maker.attr("step")
        assert isinstance(dim, int) and isinstance(start, int) and isinstance(step, int)
        region[dim] = (start, hint(g.values[maker.inputs[1]].shape[dim]), step)
    return tuple(region)
