"""How one point of a value depends on points of its operands, for every primitive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusebound.ir.builder import contiguous
from fusebound.ir.graph import Graph, Node
from fusebound.ir.maps import Affine, Index, linear

Ranges = tuple[tuple[int, int, int], ...]
"""Restrictions `lo ≤ variable < hi`, sorted by variable; a variable that is absent runs over its whole size."""


class Unresolved(Exception):
    """A point that has no affine form; `code` and the message name the obstacle, `flip` what would remove it."""

    def __init__(self, code: str, message: str, node: str, flip: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.node = node
        self.flip = flip


class NeedSplit(Exception):
    """Variable `var` must be split so that its inner part has `inner` elements."""

    def __init__(self, var: int, inner: int) -> None:
        super().__init__(var, inner)
        self.var = var
        self.inner = inner


@dataclass(frozen=True, slots=True)
class Use:
    """Operand `operand` is needed at `index`, where `ranges` hold; operand None means the constant `fill`."""

    operand: int | None
    index: Index
    ranges: Ranges
    fill: float | int | bool = 0


def bounds(ranges: Ranges, var: int, sizes: tuple[int, ...]) -> tuple[int, int]:
    """The half-open interval that `var` runs over."""
    for v, lo, hi in ranges:
        if v == var:
            return lo, hi
    return 0, sizes[var]


def interval(e: Affine, ranges: Ranges, sizes: tuple[int, ...]) -> tuple[int, int]:
    """Smallest and largest value of an expression."""
    low = high = e.const
    for v, c in e.terms:
        lo, hi = bounds(ranges, v, sizes)
        a, b = c * lo, c * (hi - 1)
        low += min(a, b)
        high += max(a, b)
    return low, high


def narrow(ranges: Ranges, var: int, lo: int, hi: int, sizes: tuple[int, ...]) -> Ranges | None:
    """Restrict `var` further; None when nothing is left."""
    a, b = bounds(ranges, var, sizes)
    lo, hi = max(lo, a), min(hi, b)
    if lo >= hi:
        return None
    rest = tuple(r for r in ranges if r[0] != var)
    if (lo, hi) == (0, sizes[var]):
        return rest
    return tuple(sorted((*rest, (var, lo, hi))))


class Resolver:
    """Expands values to their operands over the variables of an iteration space with the given sizes."""

    def __init__(
        self, g: Graph, sizes: tuple[int, ...], reductions: Mapping[tuple[str, Index], Index]
    ) -> None:
        self.g = g
        self.sizes = sizes
        self.reductions = reductions

    def shape(self, value: str) -> tuple[int, ...]:
        return tuple(d for d in self.g.values[value].shape if isinstance(d, int))

    def uses(self, node: Node, at: Index, ranges: Ranges) -> list[Use]:
        """The operand points that the point `at` of `node`'s result needs.

        Raises Unresolved where they have no affine form, NeedSplit where a finer space would have one.
        """
        match node.op:
            case "permute":
                perm = _ints(node.attr("perm"))
                index = [Affine()] * len(perm)
                for out_axis, in_axis in enumerate(perm):
                    index[in_axis] = at[out_axis]
                return [Use(0, tuple(index), ranges)]
            case "reshape":
                return [Use(0, self._reshape(node, node.out, node.inputs[0], at, ranges), ranges)]
            case "slice":
                dim, start, step = (_int(node.attr(k)) for k in ("dim", "start", "step"))
                return [Use(0, _put(at, dim, at[dim] * step + start), ranges)]
            case "flip":
                shape, index = self.shape(node.out), list(at)
                for d in _ints(node.attr("dims")):
                    index[d] = at[d] * -1 + (shape[d] - 1)
                return [Use(0, tuple(index), ranges)]
            case "cat":
                return self._cat(node, at, ranges)
            case "pad":
                return self._pad(node, at, ranges)
            case "slice_scatter":
                return self._slice_scatter(node, at, ranges)
            case "gather" | "index_select":
                return [Use(1, self.index_at(node, at), ranges)]
            case _ if (node.id, at) in self.reductions:
                return [Use(0, self.reductions[node.id, at], ranges)]
            case _:
                return [Use(k, self._broadcast(v, at), ranges) for k, v in enumerate(node.inputs)]

    def index_at(self, node: Node, at: Index) -> Index:
        """Where a gather reads its index operand."""
        if node.op == "gather":
            return at
        dim = _int(node.attr("dim"))
        return at[dim : dim + len(self.g.values[node.inputs[1]].shape)]

    def source_at(self, node: Node, at: Index) -> Index:
        """Where a gather reads its source, with the gathered axis left at 0 for the index to be added."""
        dim = _int(node.attr("dim"))
        if node.op == "gather":
            return _put(at, dim, Affine())
        rank = len(self.g.values[node.inputs[1]].shape)
        return (*at[:dim], Affine(), *at[dim + rank :])

    def forward(self, node: Node, operand: int, at: Index) -> Index | None:
        """Where the result lies when operand number `operand` is at `at` and every result point is reached once."""
        value = node.inputs[operand]
        match node.op:
            case "permute":
                return tuple(at[p] for p in _ints(node.attr("perm")))
            case "reshape":
                return self._reshape(node, value, node.out, at, ())
            case "flip":
                return self.uses(node, at, ())[0].index
            case "sum" | "prod" | "amax" | "amin" | "any" | "all" | "argmax" | "argmin":
                axes = _ints(node.attr("axes"))
                return tuple(e for i, e in enumerate(at) if i not in axes)
            case "slice" | "cat" | "pad" | "slice_scatter" | "gather" | "index_select" | "expand":
                return None
            case _:
                return at if self.shape(value) == self.shape(node.out) else None

    def _broadcast(self, value: str, at: Index) -> Index:
        shape = self.shape(value)
        tail = at[len(at) - len(shape) :]
        return tuple(Affine() if n == 1 else e for n, e in zip(shape, tail, strict=True))

    def _reshape(self, node: Node, source: str, result: str, at: Index, ranges: Ranges) -> Index:
        flat = linear(at, contiguous_of(self.shape(source)))
        return self._delinearize(flat, self.shape(result), ranges, node)

    def _delinearize(self, e: Affine, shape: tuple[int, ...], ranges: Ranges, node: Node) -> Index:
        strides = contiguous_of(shape)
        low, _ = interval(e, ranges, self.sizes)
        axes: list[Affine] = []
        for n, s in zip(shape, strides, strict=True):
            axes.append(Affine(low // s % n if n else 0))
        for v, c in e.terms:
            lo, hi = bounds(ranges, v, self.sizes)
            if hi - lo == 1:
                continue
            axis = next((k for k, s in enumerate(strides) if abs(c) >= s and shape[k] > 1), None)
            if axis is None or c % strides[axis]:
                raise self._no_factor(node)
            room = strides[axis] * shape[axis]
            if abs(c) * (hi - lo) > room:
                self._split(v, c, room, lo, hi, node)
            step = c // strides[axis]
            axes[axis] = axes[axis] + Affine.var(v, step, -step * (lo if c > 0 else hi - 1))
        for n, a in zip(shape, axes, strict=True):
            if interval(a, ranges, self.sizes)[1] >= max(n, 1):
                raise self._no_factor(node)
        return tuple(axes)

    def _split(self, v: int, c: int, room: int, lo: int, hi: int, node: Node) -> None:
        inner = room // c if c > 0 and room % c == 0 else 0
        if inner <= 1 or (lo, hi) != (0, self.sizes[v]) or self.sizes[v] % inner:
            raise self._no_factor(node)
        raise NeedSplit(v, inner)

    def _no_factor(self, node: Node) -> Unresolved:
        a, b = self.shape(node.inputs[0]), self.shape(node.out)
        return Unresolved(
            "F502", f"the reshape {list(a)} → {list(b)} does not factor over the loops", node.id
        )

    def _cat(self, node: Node, at: Index, ranges: Ranges) -> list[Use]:
        dim = _int(node.attr("dim"))
        uses: list[Use] = []
        start = 0
        for k, v in enumerate(node.inputs):
            size = self.shape(v)[dim]
            part = self._within(at[dim], start, start + size, ranges, node)
            if part is not None:
                uses.append(Use(k, _put(at, dim, at[dim] + -start), part))
            start += size
        return uses

    def _pad(self, node: Node, at: Index, ranges: Ranges) -> list[Use]:
        lows, shape = _ints(node.attr("lo")), self.shape(node.inputs[0])
        fill = node.attr("value")
        assert isinstance(fill, (int, float))
        uses: list[Use] = []
        left: Ranges | None = ranges
        for d, lo in enumerate(lows):
            whole = self.shape(node.out)[d]
            assert left is not None
            for a, b in ((0, lo), (lo + shape[d], whole)):
                part = self._within(at[d], a, b, left, node) if a < b else None
                if part is not None:
                    uses.append(Use(None, at, part, fill))
            left = self._within(at[d], lo, lo + shape[d], left, node) if shape[d] else None
            if left is None:
                return [Use(None, at, ranges, fill)]
        uses.append(Use(0, tuple(e + -lo for e, lo in zip(at, lows, strict=True)), left))
        return uses

    def _slice_scatter(self, node: Node, at: Index, ranges: Ranges) -> list[Use]:
        dim, start, step = (_int(node.attr(k)) for k in ("dim", "start", "step"))
        size, whole = self.shape(node.inputs[1])[dim], self.shape(node.out)[dim]
        if step != 1:
            raise Unresolved("F505", "a strided slice assignment has no schedule", node.id)
        uses: list[Use] = []
        for operand, a, b in ((0, 0, start), (1, start, start + size), (0, start + size, whole)):
            part = self._within(at[dim], a, b, ranges, node) if a < b else None
            if part is not None:
                uses.append(Use(operand, _put(at, dim, at[dim] + -start) if operand else at, part))
        return uses

    def _within(self, e: Affine, a: int, b: int, ranges: Ranges, node: Node) -> Ranges | None:
        """The ranges on which `a ≤ e < b`, or None where there are none; one variable decides it."""
        low, high = interval(e, ranges, self.sizes)
        if a <= low and high < b:
            return ranges
        if high < a or low >= b:
            return None
        v, c = max(e.terms, key=lambda t: abs(t[1]))
        rest = e + Affine.var(v, -c)
        low, high = interval(rest, ranges, self.sizes)
        if c < 0:
            raise Unresolved("F506", "a reversed axis meets a piecewise operator", node.id)
        if high - low >= c or (a - low) % c or (b - low) % c:
            lo, hi = bounds(ranges, v, self.sizes)
            if c == 1 or (lo, hi) != (0, self.sizes[v]):
                raise Unresolved("F506", "the pieces do not fall on loop boundaries", node.id)
            raise Unresolved("F502", "the pieces do not fall on the axes of the loops", node.id)
        return narrow(ranges, v, (a - low) // c, (b - low) // c, self.sizes)


def contiguous_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(s for s in contiguous(shape) if isinstance(s, int))


def _put(at: Index, dim: int, e: Affine) -> Index:
    return (*at[:dim], e, *at[dim + 1 :])


def _int(a: object) -> int:
    assert isinstance(a, int)
    return a


def _ints(a: object) -> tuple[int, ...]:
    assert isinstance(a, tuple)
    return tuple(_int(x) for x in a)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
