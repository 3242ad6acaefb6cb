"""Smaller shapes on which a group computes the same thing, so that it can be simulated in milliseconds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import product
from math import prod

from fusebound.analysis.access import factor, integer, ints
from fusebound.analysis.group import in_order
from fusebound.ir.graph import Graph, Node, hint
from fusebound.ir.ops import spec_of

Shapes = dict[str, tuple[int, ...]]
AxisOf = tuple[str, int]

GOOD_ELEMENTS = 1 << 15
MAX_ELEMENTS = 1 << 17
"""Elements of the largest value: tens of milliseconds a simulation, and what long rows may need at most."""

CAPS = (65, 17, 3)
"""Sizes for axes that may shrink, largest first; odd, so that tails occur."""


def shrink(g: Graph, nodes: Collection[str]) -> Shapes | None:
    """New shapes for every value that `nodes` touch, or None when even the smallest are too large.

    Axes that are reduced, sliced, joined or split keep their sizes (a mean divides by a constant); all axes
    that elementwise operators tie together shrink together.
    """
    order = in_order(g, nodes)
    values = dict.fromkeys(v for n in order for v in (*n.inputs, *n.outputs))
    original: Shapes = {v: tuple(hint(d) for d in g.values[v].shape) for v in values}
    ties = _Ties(g)
    for n in order:
        ties.add(n)
    largest = max((d for s in original.values() for d in s), default=1)
    for limit, cap in product((GOOD_ELEMENTS, MAX_ELEMENTS), (largest, *CAPS)):
        shapes = {v: tuple(ties.size(v, k, d, cap) for k, d in enumerate(s)) for v, s in original.items()}
        if max((prod(s) for s in shapes.values()), default=0) <= limit:
            return shapes
    return None


@dataclass(slots=True)
class _Ties:
    """Union-find over axes; a fixed class keeps its size."""

    g: Graph
    parent: dict[AxisOf, AxisOf] = field(default_factory=dict[AxisOf, AxisOf])
    fixed: set[AxisOf] = field(default_factory=set[AxisOf])

    def find(self, a: AxisOf) -> AxisOf:
        while (p := self.parent.get(a, a)) != a:
            a = p
        return a

    def tie(self, a: AxisOf, b: AxisOf) -> None:
        x, y = self.find(a), self.find(b)
        if x != y:
            self.parent[x] = y
            if x in self.fixed:
                self.fixed.add(y)

    def fix(self, a: AxisOf) -> None:
        self.fixed.add(self.find(a))

    def size(self, value: str, axis: int, size: int, cap: int) -> int:
        return size if self.find((value, axis)) in self.fixed else min(size, cap)

    def shape(self, value: str) -> tuple[int, ...]:
        return tuple(hint(d) for d in self.g.values[value].shape)

    def add(self, n: Node) -> None:
        """Tie the axes of a node's operands to those of its result."""
        spec = spec_of(n.op)
        if spec is None:
            for v in (*n.inputs, *n.outputs):
                self._fix_all(v)
        elif spec.cls == "reduce":
            self._reduce(n)
        elif spec.cls == "gather":
            self._gather(n)
        elif spec.cls == "move":
            self._move(n)
        else:
            for v in n.inputs:
                self._align(v, n.out)

    def _fix_all(self, value: str) -> None:
        for k in range(len(self.shape(value))):
            self.fix((value, k))

    def _align(self, value: str, out: str) -> None:
        a, b = self.shape(value), self.shape(out)
        for k, size in enumerate(a):
            j = len(b) - len(a) + k
            if size == b[j]:
                self.tie((value, k), (out, j))

    def _reduce(self, n: Node) -> None:
        axes, v = ints(n.attr("axes")), n.inputs[0]
        kept = iter(range(len(self.shape(n.out))))
        for k in range(len(self.shape(v))):
            if k in axes:
                self.fix((v, k))
            else:
                self.tie((v, k), (n.out, next(kept)))

    def _gather(self, n: Node) -> None:
        """Every axis keeps its size: indices must stay within the source."""
        for v in (*n.inputs, n.out):
            self._fix_all(v)

    def _move(self, n: Node) -> None:
        match n.op:
            case "permute":
                for o, i in enumerate(ints(n.attr("perm"))):
                    self.tie((n.inputs[0], i), (n.out, o))
            case "reshape":
                self._reshape(n)
            case "slice" | "cat" | "slice_scatter":
                self._along(n, (integer(n.attr("dim")),))
            case "pad":
                a, b = self.shape(n.inputs[0]), self.shape(n.out)
                self._along(n, tuple(k for k, (x, y) in enumerate(zip(a, b, strict=True)) if x != y))
            case _:
                self._align(n.inputs[0], n.out)

    def _along(self, n: Node, dims: tuple[int, ...]) -> None:
        for v in n.inputs:
            for k in range(len(self.shape(v))):
                if k in dims:
                    self.fix((v, k))
                    self.fix((n.out, k))
                else:
                    self.tie((v, k), (n.out, k))

    def _reshape(self, n: Node) -> None:
        v = n.inputs[0]
        a, b = self.shape(v), self.shape(n.out)
        for source, result in factor(a, b):
            left, right = [i for i in source if a[i] > 1], [j for j in result if b[j] > 1]
            if len(left) == len(right) == 1:
                self.tie((v, left[0]), (n.out, right[0]))
                continue
            for i in left:
                self.fix((v, i))
            for j in right:
                self.fix((n.out, j))
