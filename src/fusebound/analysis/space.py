"""One iteration space for a group: where every value of the group lies in it, or why there is none.

Positions are found backwards from the stored values: a value is a function of its point, so its operands are needed
at points that `resolve` derives. Reductions bring variables of their own, taken from the space where it already has
an axis of that size, so that passes over one row share their loops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from fusebound.analysis.group import boundary, in_order
from fusebound.analysis.resolve import (
    NeedSplit,
    Ranges,
    Resolver,
    Unresolved,
    bounds,
    contiguous_of,
    interval,
)  # fmt: skip
from fusebound.ir.dtypes import KERNEL_DTYPES
from fusebound.ir.graph import Graph, Node
from fusebound.ir.maps import Affine, Index, linear
from fusebound.ir.ops import OPS

MAX_SITES = 4000
MAX_SEGMENTS = 12
MAX_SERIAL_ROW = 1 << 16


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a group has no common iteration space: a code, the obstacle, the primitives concerned."""

    code: str
    message: str
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """A value that the kernel leaves in memory: stored at `index` on the part of the space in `ranges`."""

    value: str
    index: Index
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Space:
    """The common iteration space of a group.

    `dims` are the sizes of its variables; `reduced` are those that reductions run over; `cuts` are the points at
    which loops are split (pad, cat, slice). `reductions` maps a reduction and its position to its operand's
    position. `stages` counts the passes over a row, `depth` gives the pass that computes each reduction.
    `live_vectors`, `scratch_bytes` (per row) and `evaluations` are what the resources gate reads.
    """

    dims: tuple[int, ...]
    reduced: frozenset[int]
    cuts: Mapping[int, tuple[int, ...]]
    reductions: Mapping[tuple[str, Index], Index]
    depth: Mapping[str, int]
    stores: tuple[Store, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    stages: int
    live_vectors: int
    scratch_bytes: int
    evaluations: int

    @property
    def row(self) -> int:
        """Elements of one reduced row (1 without reductions)."""
        return prod(self.dims[v] for v in self.reduced)

    @property
    def outer(self) -> int:
        """Independent rows (all points without reductions)."""
        return prod(n for v, n in enumerate(self.dims) if v not in self.reduced)


def unify(g: Graph, nodes: Collection[str]) -> Space | Refusal:
    """Place every value of the group over one iteration space. Pure; raises nothing for a legal graph."""
    inside = frozenset(nodes)
    refusal = _unsupported(g, inside)
    if refusal is not None:
        return refusal
    if not boundary(g, inside)[1]:
        return Refusal("F501", "nothing that these operators compute is used", tuple(sorted(inside)))
    factors: dict[str, tuple[int, ...]] = {}
    for _ in range(64):
        walk = _Walk(g, inside, factors)
        try:
            return walk.run()
        except NeedSplit as need:
            walk.split(need)
        except Unresolved as u:
            return Refusal(u.code, u.message, (u.node,))
    return Refusal("F502", "the reshapes of the group do not share a factorization")


def _unsupported(g: Graph, inside: frozenset[str]) -> Refusal | None:
    for n in in_order(g, inside):
        spec = OPS.get(n.op)
        user = g.user[n.user]
        if spec is None:
            return Refusal(user.why or "F601", f"{user.label} runs through the framework", (n.id,))
        if spec.cls == "gather" and (p := g.producer.get(n.inputs[0])) is not None and p.id in inside:
            return Refusal(
                "F609", f"{user.label} gathers from a value that the kernel itself computes", (n.id,)
            )
        for v in (*n.inputs, *n.outputs):
            value = g.values[v]
            if not value.is_static:
                return Refusal("F507", f"{user.label} has a symbolic size {value.shape}", (n.id,))
            if value.dtype not in KERNEL_DTYPES:
                return Refusal("F604", f"{user.label} computes in {value.dtype}", (n.id,))
            if value.device != "cpu":
                return Refusal("F605", f"{user.label} runs on {value.device}", (n.id,))
            if value.scalar:
                return Refusal("F602", f"{user.label} reads a number known only at run time", (n.id,))
            if value.numel == 0:
                return Refusal("F507", f"{user.label} has a tensor without elements", (n.id,))
    return None


@dataclass(slots=True)
class _Walk:
    """One attempt to place the group with a given factorization of its axes."""

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
    hints: dict[str, tuple[Index, Ranges]] = field(default_factory=dict[str, tuple[Index, Ranges]])
    count: int = 0

    def run(self) -> Space:
        inputs, outputs = boundary(self.g, self.inside)
        order = in_order(self.g, self.inside)
        root = max(outputs, key=lambda v: (self._weight(v), self.g.position[self.g.producer[v].id]))
        self._visit(root, self._fresh_index("root", self._shape(root)), ())
        self._sweep(order)
        for value in outputs:
            if not self.sites.get(value):
                self._reach(value, order)
        stores = tuple(s for v in outputs for s in self._stores(v))
        return self._space(inputs, outputs, order, stores)

    def split(self, need: NeedSplit) -> None:
        key, k = self.owner[need.var]
        parts = list(self.factors[key])
        parts[k : k + 1] = [parts[k] // need.inner, need.inner]
        self.factors[key] = tuple(parts)

    # placing

    def _shape(self, value: str) -> tuple[int, ...]:
        return tuple(d for d in self.g.values[value].shape if isinstance(d, int))

    def _weight(self, value: str) -> int:
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
        for n, e in zip(self._shape(value), at, strict=True):
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
            row = self._reduced_vars((n.id, at), self.reductions[n.id, at])
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
            if self._row_of(place, axes, at, self._shape(n.inputs[0])):
                return place
        kept = iter(at)
        taken = {v for e in at for v in e.vars}
        index: list[Affine] = []
        for k, size in enumerate(self._shape(n.inputs[0])):
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
            near = [u for u in n.inputs if u not in seen and self._shape(u) == self._shape(v)]
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

    def _reach(self, value: str, order: list[Node]) -> None:
        """Place a stored value that the others do not need, by following shared operands forwards."""
        target = self.g.producer[value]
        for n in order:
            if self.sites.get(n.out):
                continue
            at = self._forward(n)
            if at is not None:
                index, ranges = at
                if n.out == value:
                    self._visit(value, index, ranges)
                    self._sweep(order)
                    return
                self.hints[n.out] = (index, ranges)
        raise Unresolved(
            "F501", f"{self._label(target)} runs over a domain that the rest of the group does not share", target.id
        )  # fmt: skip

    def _forward(self, n: Node) -> tuple[Index, Ranges] | None:
        resolver = self._resolver()
        for k, v in enumerate(n.inputs):
            places = [*self.sites.get(v, ()), *((self.hints[v],) if v in self.hints else ())]
            for at, ranges in places:
                if ranges or not self._bijective(v, at, ranges):
                    continue
                out = resolver.forward(n, k, at, ranges)
                if out is not None:
                    return out, ranges
        return None

    def _label(self, n: Node) -> str:
        return self.g.user[n.user].label

    # checking

    def _stores(self, value: str) -> list[Store]:
        for at, ranges in self.sites[value]:
            if self._bijective(value, at, ranges):
                return [Store(value, at, ranges)]
        parts = [Store(value, at, ranges) for at, ranges in self.sites[value] if self._injective(at)]
        chosen = _partition(parts, self._shape(value), tuple(self.sizes))
        if chosen is None:
            n = self.g.producer[value]
            raise Unresolved(
                "F501", f"{self._label(n)} must be stored, but the group needs only part of it or needs it elsewhere",
                n.id,
            )  # fmt: skip
        return chosen

    def _injective(self, at: Index) -> bool:
        used = [v for e in at for v in e.vars]
        return len(used) == len(set(used)) and all(c > 0 for e in at for _, c in e.terms)

    def _bijective(self, value: str, at: Index, ranges: Ranges) -> bool:
        """Whether the points of `at` are all points of the value, each once."""
        shape = self._shape(value)
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

    def _space(
        self, inputs: tuple[str, ...], outputs: tuple[str, ...], order: list[Node], stores: tuple[Store, ...]
    ) -> Space:
        reduced = frozenset(
            v for key, index in self.reductions.items() for v in self._reduced_vars(key, index)
        )
        used = {v for s in self.sites.values() for at, _ in s for e in at for v in e.vars}
        outer = {v for v in used if v not in reduced}
        self._check_nesting(reduced, outer)
        self._check_stores(stores, reduced, outer)
        depth = self._depths(order)
        stages = 1 + max((depth[n.out] for n in order), default=0)
        row = prod(self.sizes[v] for v in reduced)
        if reduced and not outer and row > MAX_SERIAL_ROW:
            n = next(n for n in order if OPS[n.op].cls == "reduce")
            raise Unresolved(
                "F504", f"{self._label(n)} reduces everything to one value, which needs the whole grid", n.id
            )
        width = max(self.g.values[n.out].type.itemsize for n in order)
        cuts = self._cuts()
        if prod(len(c) + 1 for c in cuts.values()) > MAX_SEGMENTS:
            raise Unresolved("F506", f"{prod(len(c) + 1 for c in cuts.values())} loop segments", order[-1].id)
        return Space(
            tuple(self.sizes), reduced, cuts, dict(self.reductions), depth, stores, inputs, outputs, stages,
            self._live(order), row * max(width, 4) if stages > 1 else 0, self._evaluations(order),
        )  # fmt: skip

    def _reduced_vars(self, key: tuple[str, Index], index: Index) -> frozenset[int]:
        axes = self.g.node[key[0]].attr("axes")
        assert isinstance(axes, tuple)
        return frozenset(v for k, e in enumerate(index) if k in axes for v in e.vars)

    def _check_nesting(self, reduced: frozenset[int], outer: set[int]) -> None:
        """Reductions share one row, which each of them reduces whole, once per outer point."""
        for key, index in self.reductions.items():
            node, at = key
            label = self._label(self.g.node[node])
            if any(e.vars & reduced for e in at):
                raise Unresolved(
                    "F503", f"{label} keeps an axis that another reduction of the group removes", node
                )  # fmt: skip
            if self._reduced_vars(key, index) != reduced:
                raise Unresolved("F503", f"{label} reduces other axes than the rest of the group", node)
            for place, ranges in self.sites[self.g.node[node].out]:
                mine = {v for e in at for v in e.vars} | {v for v, lo, hi in ranges if hi - lo == 1}
                if place == at and outer - mine:
                    raise Unresolved(
                        "F501", f"{label} would be computed once per repetition of its broadcast", node
                    )  # fmt: skip

    def _check_stores(self, stores: tuple[Store, ...], reduced: frozenset[int], outer: set[int]) -> None:
        for s in stores:
            mine = {v for e in s.index for v in e.vars} | {v for v, lo, hi in s.ranges if hi - lo == 1}
            n = self.g.producer[s.value]
            missing = outer - mine
            if missing:
                raise Unresolved(
                    "F501", f"{self._label(n)} would be computed once per repetition of its broadcast", n.id
                )
            part = frozenset(mine & reduced)
            if part and part != reduced:
                raise Unresolved(
                    "F503", f"{self._label(n)} keeps part of the axes that the group reduces", n.id
                )

    def _depths(self, order: list[Node]) -> dict[str, int]:
        """How many reductions lie before each value, on the longest path inside the group."""
        depth: dict[str, int] = {}
        for n in order:
            here = max((depth.get(v, 0) for v in n.inputs), default=0)
            depth[n.out] = here + (OPS[n.op].cls == "reduce")
        return depth

    def _cuts(self) -> dict[int, tuple[int, ...]]:
        points: dict[int, set[int]] = {}
        for places in self.sites.values():
            for _, ranges in places:
                for v, lo, hi in ranges:
                    points.setdefault(v, set()).update(p for p in (lo, hi) if 0 < p < self.sizes[v])
        return {v: tuple(sorted(p)) for v, p in sorted(points.items())}

    def _evaluations(self, order: list[Node]) -> int:
        return sum(len(self.sites.get(n.out, ())) for n in order if OPS[n.op].flops)

    def _live(self, order: list[Node]) -> int:
        """Peak vectors live in one pass: values between their definition and last use, accumulators included."""
        last: dict[str, int] = {}
        for i, n in enumerate(order):
            for v in n.inputs:
                last[v] = i
        live: set[str] = set()
        peak = 0
        accumulators = sum(2 for n in order if OPS[n.op].cls == "reduce")
        for i, n in enumerate(order):
            live |= {v for v in n.inputs if self._weight(v) > 1}
            live.add(n.out)
            peak = max(peak, len(live))
            live = {v for v in live if last.get(v, -1) > i}
        return peak + min(accumulators, 8)


def _partition(parts: list[Store], shape: tuple[int, ...], sizes: tuple[int, ...]) -> list[Store] | None:
    """Disjoint boxes that cover the shape exactly, if the parts are such."""
    seen: dict[tuple[tuple[int, int], ...], Store] = {}
    for p in parts:
        seen.setdefault(tuple(interval(e, p.ranges, sizes) for e in p.index), p)
    boxes = list(seen)
    volume = sum(prod(hi - lo + 1 for lo, hi in b) for b in boxes)
    exact = all(_dense(p, sizes) for p in seen.values())
    if volume != prod(shape) or not exact or any(_meet(a, b) for i, a in enumerate(boxes) for b in boxes[:i]):
        return None
    return list(seen.values())


def _dense(p: Store, sizes: tuple[int, ...]) -> bool:
    """Whether each axis takes every value of its interval."""
    for e in p.index:
        step = 1
        for v, c in sorted(e.terms, key=lambda t: t[1]):
            lo, hi = bounds(p.ranges, v, sizes)
            if hi - lo == 1:
                continue
            if c != step:
                return False
            step *= hi - lo
    return True


def _meet(a: tuple[tuple[int, int], ...], b: tuple[tuple[int, int], ...]) -> bool:
    return all(x[0] <= y[1] and y[0] <= x[1] for x, y in zip(a, b, strict=True))
