"""Where the values of a group lie: positions found backwards from the results, over variables made on the way.

A value is a function of its point, so its operands are needed at points that `resolve` derives. Reductions bring
variables of their own, taken from the space where it already has an axis of that size, so that passes over one row
share their loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from fusebound.analysis.resolve import (
    NeedSplit,
    Ranges,
    Resolver,
    Unresolved,
    bounds,
    contiguous_of,
    interval,
)  # fmt: skip
from fusebound.ir.graph import Graph, Node
from fusebound.ir.maps import Affine, Index, linear
from fusebound.ir.ops import OPS

MAX_SITES = 4000
"""Evaluations at which placing gives up (F303)."""


@dataclass(slots=True)
class Placement:
    """One attempt to place the group with a given factorization of its axes.

    `sites` holds the positions of every value with the restrictions under which it is needed there, `reductions`
    maps a reduction and its position to its operand's. `sizes` and `owner` are by variable: its size, and the factor
    of `factors` that it stands for. `axes` are known expressions by size, `hints` positions found forwards.
    """

    g: Graph
    inside: frozenset[str]
    factors: dict[str, tuple[int, ...]]
    sizes: list[int] = field(default_factory=list[int])
    owner: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    sites: dict[str, dict[tuple[Index, Ranges], None]] = field(
        default_factory=dict[str, dict[tuple[Index, Ranges], None]]
    )
    reductions: dict[tuple[str, Index], Index] = field(default_factory=dict[tuple[str, Index], Index])
    axes: dict[int, dict[Affine, None]] = field(default_factory=dict[int, dict[Affine, None]])
    hints: dict[str, Index] = field(default_factory=dict[str, Index])
    count: int = 0

    def place(self, outputs: tuple[str, ...], order: list[Node]) -> None:
        """Find the positions of everything that the outputs need, from the largest of them backwards.

        Raises NeedSplit for a factorization that is too coarse, Unresolved where there is no position.
        """
        root = max(outputs, key=lambda v: (self.weight(v), self.g.position[self.g.producer[v].id]))
        self._visit(root, self._fresh_index("root", self.shape(root)), ())
        self._sweep(order)
        while missing := [v for v in outputs if not self.sites.get(v)]:
            if not any(self._reach(v, order) for v in missing):
                n = self.g.producer[missing[0]]
                raise self._apart(root, n)

    def _apart(self, root: str, n: Node) -> Unresolved:
        """Why no loop of `n` is tied to one of the root's."""
        if self.shape(n.out) != self.shape(root):
            why = f"{self.label(n)} runs over a domain that the rest of the group does not share"
            return Unresolved("F501", why, n.id)
        other = self.label(self.g.producer[root])
        why = f"{self.label(n)} and {other} share no value that has all of their axes, which would tie their loops"
        return Unresolved("F501", why, n.id, "a common operand of the full shape")

    def split(self, need: NeedSplit) -> None:
        """Factor an axis further, for the next attempt."""
        key, k = self.owner[need.var]
        parts = list(self.factors[key])
        parts[k : k + 1] = [parts[k] // need.inner, need.inner]
        self.factors[key] = tuple(parts)

    def shape(self, value: str) -> tuple[int, ...]:
        return tuple(d for d in self.g.values[value].shape if isinstance(d, int))

    def weight(self, value: str) -> int:
        return self.g.values[value].numel

    def _fresh_index(self, key: str, shape: tuple[int, ...]) -> Index:
        return tuple(self._fresh(f"{key}.{k}", n) for k, n in enumerate(shape))

    def _fresh(self, key: str, size: int) -> Affine:
        """New variables for an axis, split as earlier attempts found necessary."""
        if size == 1:
            return Affine()
        e = Affine()
        step = size
        for k, f in enumerate(self.factors.setdefault(key, (size,))):
            step //= f
            e = e + Affine.var(len(self.sizes), step)
            self.sizes.append(f)
            self.owner.append((key, k))
        self.axes.setdefault(size, {})[e] = None
        return e

    def _visit(self, value: str, at: Index, ranges: Ranges) -> None:
        places = self.sites.setdefault(value, {})
        if (at, ranges) in places:
            return
        self.count += 1
        if self.count > MAX_SITES:
            raise Unresolved("F303", f"inlining needs more than {MAX_SITES} evaluations", value)
        places[at, ranges] = None
        for n, e in zip(self.shape(value), at, strict=True):
            if n > 1 and self._covers(e, n, ranges):
                self.axes.setdefault(n, {})[e] = None

    def _sweep(self, order: list[Node]) -> None:
        """Propagate positions from results to operands, last operator first."""
        done: set[tuple[str, Index, Ranges]] = set()
        for n in reversed(order):
            for at, ranges in list(self.sites.get(n.out, ())):
                if (n.out, at, ranges) in done:
                    continue
                done.add((n.out, at, ranges))
                self._expand(n, at, ranges)

    def _expand(self, n: Node, at: Index, ranges: Ranges) -> None:
        spec = OPS[n.op]
        if spec.cls == "reduce":
            if (n.id, at) not in self.reductions:
                self.reductions[n.id, at] = self._reduce(n, at)
            # The whole row is reduced, whatever part of it the result is needed on.
            row = self.reduced_vars((n.id, at), self.reductions[n.id, at])
            ranges = tuple(r for r in ranges if r[0] not in row)
        resolver = self._resolver()
        for use in resolver.uses(n, at, ranges):
            if use.operand is not None:
                self._visit(n.inputs[use.operand], use.index, use.ranges)
        if spec.cls == "gather":
            self._visit(n.inputs[0], resolver.source_at(n, at), ranges)

    def _resolver(self) -> Resolver:
        return Resolver(self.g, tuple(self.sizes), self.reductions)

    def _reduce(self, n: Node, at: Index) -> Index:
        """The operand's position for a reduction at `at`: where a relative of it lies, else axes the space has, else
        new ones."""
        axes = n.attr("axes")
        assert isinstance(axes, tuple)
        for place in self._relatives(n.inputs[0]):
            if self._row_of(place, axes, at, self.shape(n.inputs[0])):
                return place
        kept = iter(at)
        taken = {v for e in at for v in e.vars}
        index: list[Affine] = []
        for k, size in enumerate(self.shape(n.inputs[0])):
            e = (
                next(kept)
                if k not in axes
                else self._known_axis(size, taken) or self._fresh(f"{n.id}.{k}", size)
            )
            taken |= e.vars
            index.append(e)
        return tuple(index)

    def _relatives(self, value: str) -> Iterator[Index]:
        """Positions of a value, or of the values of its shape that it is computed from point by point."""
        stack, seen = [value], {value}
        while stack:
            v = stack.pop()
            found = self.sites.get(v)
            if found:
                yield from (at for at, _ in found)
                continue
            n = self.g.producer.get(v)
            if n is None or n.id not in self.inside or OPS[n.op].cls != "pointwise":
                continue
            near = [u for u in n.inputs if u not in seen and self.shape(u) == self.shape(v)]
            seen.update(near)
            stack.extend(near)

    def _row_of(self, index: Index, axes: tuple[object, ...], at: Index, shape: tuple[int, ...]) -> bool:
        """Whether an operand's position is a whole row of the reduction at `at`."""
        kept = tuple(e for k, e in enumerate(index) if k not in axes)
        taken = {v for e in at for v in e.vars}
        for k, e in enumerate(index):
            if k in axes:
                if e.vars & taken or not self._covers(e, shape[k], ()):
                    return False
                taken |= e.vars
        return kept == at

    def _known_axis(self, size: int, taken: set[int]) -> Affine | None:
        if size == 1:
            return Affine()
        for e in self.axes.get(size, ()):
            if not (e.vars & taken) and self._covers(e, size, ()):
                return e
        return None

    def _covers(self, e: Affine, size: int, ranges: Ranges) -> bool:
        """Whether an expression takes each value of 0 … size-1 exactly once."""
        if e.const or any(c < 0 for _, c in e.terms) or any(v in {r[0] for r in ranges} for v in e.vars):
            return False
        step = 1
        for v, c in sorted(e.terms, key=lambda t: t[1]):
            if c != step:
                return False
            step *= self.sizes[v]
        return step == size

    def _reach(self, value: str, order: list[Node]) -> bool:
        """Place a stored value that the placed ones do not need, by following shared operands forwards; False where
        they do not lead to it. One that is computed from it may be reached first, and then gives it a place."""
        for n in order:
            if self.sites.get(n.out):
                continue
            at = self._forward(n)
            if at is None:
                continue
            if n.out == value:
                self._visit(value, at, ())
                self._sweep(order)
                return True
            self.hints[n.out] = at
        return False

    def _forward(self, n: Node) -> Index | None:
        """The position of a result whose operand lies, whole, at a known one."""
        resolver = self._resolver()
        for k, v in enumerate(n.inputs):
            places = [at for at, ranges in self.sites.get(v, ()) if not ranges]
            places += [self.hints[v]] if v in self.hints else []
            for at in places:
                out = resolver.forward(n, k, at) if self.bijective(v, at, ()) else None
                if out is not None:
                    return out
        return None

    def label(self, n: Node) -> str:
        return self.g.user[n.user].label

    def reduced_vars(self, key: tuple[str, Index], index: Index) -> frozenset[int]:
        """The variables that a reduction runs over."""
        axes = self.g.node[key[0]].attr("axes")
        assert isinstance(axes, tuple)
        return frozenset(v for k, e in enumerate(index) if k in axes for v in e.vars)

    def bijective(self, value: str, at: Index, ranges: Ranges) -> bool:
        """Whether the points of `at` are all points of the value, each once."""
        shape = self.shape(value)
        if not all(
            interval(e, ranges, tuple(self.sizes)) == (0, n - 1) for e, n in zip(at, shape, strict=True)
        ):
            return False
        flat = linear(at, contiguous_of(shape))
        step = 1
        for v, c in sorted(flat.terms, key=lambda t: abs(t[1])):
            lo, hi = bounds(ranges, v, tuple(self.sizes))
            if hi - lo == 1:
                continue
            if abs(c) != step:
                return False
            step *= hi - lo
        return step == prod(shape)
