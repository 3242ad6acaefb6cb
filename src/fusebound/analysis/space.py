"""One iteration space for a group: where every value of the group lies in it, or why there is none.

`placement` finds the positions; here it is decided whether they make one kernel, and what it needs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod

from fusebound.analysis.group import boundary, in_order
from fusebound.analysis.placement import Placement
from fusebound.analysis.raising import partly_checked
from fusebound.analysis.resolve import (
    NeedSplit,
    Ranges,
    Unresolved,
    bounds,
    interval,
)  # fmt: skip
from fusebound.ir.dtypes import KERNEL_DTYPES
from fusebound.ir.graph import Graph, Node
from fusebound.ir.maps import Index
from fusebound.ir.ops import OPS

MAX_SEGMENTS = 12
MAX_SERIAL_ROW = 1 << 16
"""Elements of a row on one thread, where rows in pieces (pad, cat) are not cut into chunks."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a group has no common iteration space: a code, the obstacle, the primitives concerned.

    `flip` is what would remove the obstacle, where the code alone does not say it.
    """

    code: str
    message: str
    nodes: tuple[str, ...] = ()
    flip: str = ""


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
    inputs, outputs = boundary(g, inside)
    if not outputs:
        return Refusal("F501", "nothing that these operators compute is used", tuple(sorted(inside)))
    order = in_order(g, inside)
    if (n := partly_checked(g, order, outputs)) is not None:
        why = f"{g.user[n.user].label} may raise at elements of which the group needs only a part"
        return Refusal("F501", why, (n.id,))
    factors: dict[str, tuple[int, ...]] = {}
    for _ in range(64):
        placed = Placement(g, inside, factors)
        try:
            placed.place(outputs, order)
            stores = tuple(s for v in outputs for s in _stores(placed, v))
            return _space(placed, inputs, outputs, order, stores)
        except NeedSplit as need:
            placed.split(need)
        except Unresolved as u:
            return Refusal(u.code, u.message, (u.node,), u.flip)
    return Refusal("F502", "the reshapes of the group do not share a factorization")


def _unsupported(g: Graph, inside: frozenset[str]) -> Refusal | None:
    for n in in_order(g, inside):
        spec = OPS.get(n.op)
        user = g.user[n.user]
        if spec is None:
            return Refusal(user.why or "F601", f"{user.label} runs through the framework", (n.id,))
        if spec.cls == "gather" and (p := g.producer.get(n.inputs[0])) is not None and p.id in inside:
            return _own_source(g, inside, n)
        for v in (*n.inputs, *n.outputs):
            value = g.values[v]
            if not value.is_static:
                return Refusal("F507", f"{user.label} has a symbolic size {value.shape}", (n.id,))
            if value.dtype not in KERNEL_DTYPES:
                return Refusal("F604", f"{user.label} computes in {value.dtype}", (n.id,))
            if value.device != "cpu":
                return Refusal("F605", f"{user.label} runs on {value.device}", (n.id,))
            if value.scalar and value.dtype != "float64":
                return Refusal("F602", f"{user.label} reads a number known only at run time", (n.id,))
            if value.numel == 0:
                return Refusal("F507", f"{user.label} has a tensor without elements", (n.id,))
    return None


def _own_source(g: Graph, inside: frozenset[str], gather: Node) -> Refusal:
    """A gather whose source the kernel would have to have in memory first: it computes it, or views it anew."""
    label, value = g.user[gather.user].label, gather.inputs[0]
    while (p := g.producer.get(value)) and p.id in inside and OPS[p.op].cls == "move" and len(p.inputs) == 1:
        value = p.inputs[0]
    if p is not None and p.id in inside:
        return Refusal("F609", f"{label} gathers from a value that the kernel itself computes", (gather.id,))
    source = g.user[g.producer[gather.inputs[0]].user].label
    why = f"{label} gathers from {source}, a part of {value} that the kernel would have to lay out first"
    return Refusal("F609", why, (gather.id,), f"gather from {value} itself")


def _stores(p: Placement, value: str) -> list[Store]:
    """Where a result is stored: at one position that covers it, or at several that share it out."""
    for at, ranges in p.sites[value]:
        if p.bijective(value, at, ranges):
            return [Store(value, at, ranges)]
    parts = [Store(value, at, ranges) for at, ranges in p.sites[value] if _injective(at)]
    chosen = _partition(parts, p.shape(value), tuple(p.sizes))
    if chosen is None:
        n = p.g.producer[value]
        why = f"{p.label(n)} must be stored, but the group needs only part of it or needs it elsewhere"
        raise Unresolved("F501", why, n.id, _unread(p, n))
    return chosen


def _injective(at: Index) -> bool:
    """Whether no two points of the space meet at one position."""
    used = [v for e in at for v in e.vars]
    return len(used) == len(set(used)) and all(c > 0 for e in at for _, c in e.terms)


def _space(
    p: Placement,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    order: list[Node],
    stores: tuple[Store, ...],
) -> Space:
    """The space of a placed group; raises Unresolved where it is no kernel."""
    reduced = frozenset(v for key, index in p.reductions.items() for v in p.reduced_vars(key, index))
    used = {v for s in p.sites.values() for at, _ in s for e in at for v in e.vars}
    outer = {v for v in used if v not in reduced}
    _check_nesting(p, reduced, outer)
    _check_stores(p, stores, reduced, outer)
    depth = _depths(order)
    stages = 1 + max((depth[n.out] for n in order), default=0)
    row = prod(p.sizes[v] for v in reduced)
    cuts = _cuts(p)
    if reduced and not outer and row > MAX_SERIAL_ROW and cuts:
        n = next(n for n in order if OPS[n.op].cls == "reduce")
        why = f"{p.label(n)} reduces everything to one value, from {row:,} elements in pieces"
        raise Unresolved("F504", why, n.id)
    made = [p.g.values[n.out] for n in order]
    largest = max(v.numel for v in made)
    width = max(v.type.itemsize for v in made if v.numel == largest)
    segments = prod(len(c) + 1 for c in cuts.values())
    if segments > MAX_SEGMENTS:
        raise Unresolved("F506", f"{segments} loop segments", order[-1].id)
    return Space(
        tuple(p.sizes), reduced, cuts, dict(p.reductions), depth, stores, inputs, outputs, stages,
        _live(p, order), row * max(width, 4) if stages > 1 else 0, _evaluations(p, order),
    )  # fmt: skip


def _check_nesting(p: Placement, reduced: frozenset[int], outer: set[int]) -> None:
    """Reductions share one row, which each of them reduces whole, once per outer point."""
    for key, index in p.reductions.items():
        node, at = key
        label = p.label(p.g.node[node])
        if any(e.vars & reduced for e in at):
            raise Unresolved(
                "F503", f"{label} keeps an axis that another reduction of the group removes", node
            )  # fmt: skip
        if p.reduced_vars(key, index) != reduced:
            raise Unresolved("F503", f"{label} reduces other axes than the rest of the group", node)
        for place, ranges in p.sites[p.g.node[node].out]:
            mine = {v for e in at for v in e.vars} | {v for v, lo, hi in ranges if hi - lo == 1}
            if place == at and (missing := outer - mine):
                raise Unresolved(
                    "F501",
                    _repeated(p, label, missing),
                    node,
                    "none: its result must be whole before it is broadcast",
                )


def _check_stores(p: Placement, stores: tuple[Store, ...], reduced: frozenset[int], outer: set[int]) -> None:
    for s in stores:
        mine = {v for e in s.index for v in e.vars} | {v for v, lo, hi in s.ranges if hi - lo == 1}
        n = p.g.producer[s.value]
        missing = outer - mine
        if missing:
            raise Unresolved("F501", _repeated(p, p.label(n), missing), n.id, _unread(p, n))
        part = frozenset(mine & reduced)
        if part and part != reduced:
            raise Unresolved("F503", f"{p.label(n)} keeps part of the axes that the group reduces", n.id)


def _unread(p: Placement, n: Node) -> str:
    """What spares the kernel a store."""
    return f"leave no reader of {p.label(n)} outside the kernel, which then need not store it"


def _repeated(p: Placement, label: str, missing: set[int]) -> str:
    """What is wrong with a value that does not vary along the loops `missing`."""
    times = prod(p.sizes[v] for v in missing)
    return f"{label} would be computed once per repetition of its broadcast: {times:,} times"


def _depths(order: list[Node]) -> dict[str, int]:
    """How many reductions lie before each value, on the longest path inside the group."""
    depth: dict[str, int] = {}
    for n in order:
        here = max((depth.get(v, 0) for v in n.inputs), default=0)
        depth[n.out] = here + (OPS[n.op].cls == "reduce")
    return depth


def _cuts(p: Placement) -> dict[int, tuple[int, ...]]:
    """Where loops are split: the ends of all restrictions."""
    points: dict[int, set[int]] = {}
    for places in p.sites.values():
        for _, ranges in places:
            for v, lo, hi in ranges:
                points.setdefault(v, set()).update(x for x in (lo, hi) if 0 < x < p.sizes[v])
    return {v: tuple(sorted(xs)) for v, xs in sorted(points.items())}


def _evaluations(p: Placement, order: list[Node]) -> int:
    return sum(len(p.sites.get(n.out, ())) for n in order if OPS[n.op].flops)


def _live(p: Placement, order: list[Node]) -> int:
    """Peak vectors live in one pass: values between their definition and last use, accumulators included."""
    last: dict[str, int] = {}
    for i, n in enumerate(order):
        for v in n.inputs:
            last[v] = i
    live: set[str] = set()
    peak = 0
    accumulators = sum(2 for n in order if OPS[n.op].cls == "reduce")
    for i, n in enumerate(order):
        live |= {v for v in n.inputs if p.weight(v) > 1}
        live.add(n.out)
        peak = max(peak, len(live))
        live = {v for v in live if last.get(v, -1) > i}
    return peak + min(accumulators, 8)


def _partition(parts: list[Store], shape: tuple[int, ...], sizes: tuple[int, ...]) -> list[Store] | None:
    """Disjoint boxes that cover the shape exactly, if the parts are such."""
    seen: dict[tuple[tuple[int, int], ...], Store] = {}
    for s in parts:
        seen.setdefault(tuple(interval(e, s.ranges, sizes) for e in s.index), s)
    boxes = list(seen)
    volume = sum(prod(hi - lo + 1 for lo, hi in b) for b in boxes)
    exact = all(_dense(s, sizes) for s in seen.values())
    if volume != prod(shape) or not exact or any(_meet(a, b) for i, a in enumerate(boxes) for b in boxes[:i]):
        return None
    return list(seen.values())


def _dense(s: Store, sizes: tuple[int, ...]) -> bool:
    """Whether each axis takes every value of its interval."""
    for e in s.index:
        step = 1
        for v, c in sorted(e.terms, key=lambda t: t[1]):
            lo, hi = bounds(s.ranges, v, sizes)
            if hi - lo == 1:
                continue
            if c != step:
                return False
            step *= hi - lo
    return True


def _meet(a: tuple[tuple[int, int], ...], b: tuple[tuple[int, int], ...]) -> bool:
    return all(x[0] <= y[1] and y[0] <= x[1] for x, y in zip(a, b, strict=True))
