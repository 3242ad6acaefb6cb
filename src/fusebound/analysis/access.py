"""Which elements of a value a node needs: index maps and regions of every primitive's operands.

A `Region` is a rectangular lattice, one `(start, count, step)` per axis. `needed` maps a region of a node's
result back to the region of one operand; `demand` does so for a whole kernel and says what it really reads
from memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from fusebound.analysis.group import boundary, in_order
from fusebound.ir.graph import Attr, Graph, Node, Value, hint
from fusebound.ir.ops import spec_of

Axis = tuple[int, int, int]
Region = tuple[Axis, ...]

MAX_PIECES = 8
"""A value that is read in more pieces than this counts as read whole."""


def whole(v: Value) -> Region:
    """Every element of a value."""
    return tuple((0, hint(d), 1) for d in v.shape)


def needed(g: Graph, node: Node, operand: int, out: Region) -> Region | None:
    """The elements of operand number `operand` that the elements `out` of the first result need; None for none."""
    v = g.values[node.inputs[operand]]
    spec = spec_of(node.op)
    if spec is None or spec.cls == "gather":
        return whole(v)
    if spec.cls == "reduce":
        return _reinsert(v, ints(node.attr("axes")), out)
    if spec.cls == "move":
        return _moved(g, node, operand, v, out)
    return _aligned(v, out)


def demand(g: Graph, nodes: Collection[str]) -> dict[str, list[Region]]:
    """The pieces of every external value that a kernel of `nodes` reads, given what it must store."""
    inside = frozenset(nodes)
    _, stored = boundary(g, inside)
    wanted: dict[str, list[Region]] = {v: changed(g, v) for v in stored}
    for n in reversed(in_order(g, inside)):
        regions = [r for v in n.outputs for r in wanted.get(v, ())]
        for k, v in enumerate(n.inputs):
            for r in regions:
                piece = needed(g, n, k, r)
                if piece is not None:
                    _add(wanted.setdefault(v, []), piece, g.values[v])
    return {v: rs for v, rs in wanted.items() if g.producer.get(v) is None or g.producer[v].id not in inside}


def changed(g: Graph, value: str) -> list[Region]:
    """The pieces of a result that a kernel writes: of what an input becomes, those that differ from it."""
    target = next((m.target for m in g.mutations if m.source == value), None)
    found: list[Region] = []
    v, n = value, g.producer.get(value)
    while n is not None and n.op == "slice_scatter":
        dim, start, step = (integer(n.attr(k)) for k in ("dim", "start", "step"))
        piece = _put(whole(g.values[v]), dim, (start, hint(g.values[n.inputs[1]].shape[dim]), step))
        found += [] if piece in found else [piece]
        v = n.inputs[0]
        if v == target:
            return found
        n = g.producer.get(v)
    return [whole(g.values[value])]


def elements(v: Value, regions: Sequence[Region]) -> int:
    """Distinct elements of `v` in these pieces; an axis of stride 0 counts once."""
    full = [
        0 if hint(d) == 0 else 1 if hint(s) == 0 else hint(d) for d, s in zip(v.shape, v.strides, strict=True)
    ]
    total = 0
    for k, r in enumerate(regions):
        if all(_disjoint(r, other) for other in regions[:k]):
            total += prod(min(axis[1], n) for axis, n in zip(r, full, strict=True))
    overlapping = any(not _disjoint(a, b) for i, a in enumerate(regions) for b in regions[:i])
    if overlapping:
        total = max(total, max(prod(min(a[1], n) for a, n in zip(r, full, strict=True)) for r in regions))
    return min(total, prod(full))


def ints(a: Attr) -> tuple[int, ...]:
    """An attribute that is a tuple of integers."""
    return tuple(x for x in a if isinstance(x, int)) if isinstance(a, tuple) else ()


def integer(a: Attr) -> int:
    """An attribute that is one integer (0 where it is absent)."""
    return a if isinstance(a, int) else 0


def _add(pieces: list[Region], piece: Region, v: Value) -> None:
    full = whole(v)
    if full in pieces or piece in pieces:
        return
    if piece == full or len(pieces) >= MAX_PIECES:
        pieces[:] = [full]
        return
    pieces.append(piece)


def _disjoint(a: Region, b: Region) -> bool:
    return any(_apart(x, y) for x, y in zip(a, b, strict=True))


def _apart(a: Axis, b: Axis) -> bool:
    if a[1] == 0 or b[1] == 0:
        return True
    if a[0] + (a[1] - 1) * a[2] < b[0] or b[0] + (b[1] - 1) * b[2] < a[0]:
        return True
    return a[2] == b[2] > 1 and (a[0] - b[0]) % a[2] != 0


def _aligned(v: Value, out: Region) -> Region:
    tail = out[len(out) - len(v.shape) :]
    return tuple((0, 1, 1) if hint(d) == 1 else axis for d, axis in zip(v.shape, tail, strict=True))


def _reinsert(v: Value, axes: tuple[int, ...], out: Region) -> Region:
    kept = iter(out)
    return tuple((0, hint(d), 1) if i in axes else next(kept) for i, d in enumerate(v.shape))


def _moved(g: Graph, node: Node, operand: int, v: Value, out: Region) -> Region | None:
    match node.op:
        case "permute":
            perm = ints(node.attr("perm"))
            back = [(0, 0, 1)] * len(perm)
            for o, i in enumerate(perm):
                back[i] = out[o]
            return tuple(back)
        case "expand":
            return _aligned(v, out)
        case "reshape":
            return _reshaped(v, g.values[node.out], out)
        case "slice":
            dim, start, step = (integer(node.attr(k)) for k in ("dim", "start", "step"))
            a, n, s = out[dim]
            return _put(out, dim, (start + a * step, n, s * step))
        case "flip":
            back = list(out)
            for d in ints(node.attr("dims")):
                a, n, s = out[d]
                back[d] = (hint(v.shape[d]) - 1 - (a + max(n - 1, 0) * s), n, s)
            return tuple(back)
        case "pad":
            lo = ints(node.attr("lo"))
            parts = [_clip(r, x, x + hint(d)) for r, x, d in zip(out, lo, v.shape, strict=True)]
            return None if any(p[1] == 0 for p in parts) else tuple(parts)
        case "cat":
            dim = integer(node.attr("dim"))
            start = sum(hint(g.values[i].shape[dim]) for i in node.inputs[:operand])
            part = _clip(out[dim], start, start + hint(v.shape[dim]))
            return None if part[1] == 0 else _put(out, dim, part)
        case "slice_scatter":
            return _scattered(g, node, operand, out)
        case _:
            return whole(v)


def _scattered(g: Graph, node: Node, operand: int, out: Region) -> Region | None:
    dim, start, step = (integer(node.attr(k)) for k in ("dim", "start", "step"))
    size = hint(g.values[node.inputs[1]].shape[dim])
    n = hint(g.values[node.out].shape[dim])
    if operand == 0:
        return None if out[dim] == (start, size, step) or (start, size, step) == (0, n, 1) else out
    if step != 1:
        return whole(g.values[node.inputs[1]])
    part = _clip(out[dim], start, start + size)
    return None if part[1] == 0 else _put(out, dim, part)


def _reshaped(v: Value, to: Value, out: Region) -> Region:
    if out == whole(to):
        return whole(v)
    back: list[Axis] = [(0, hint(d), 1) for d in v.shape]
    for source, result in factor([hint(d) for d in v.shape], [hint(d) for d in to.shape]):
        left = [i for i in source if hint(v.shape[i]) > 1]
        right = [j for j in result if hint(to.shape[j]) > 1]
        if len(left) == 1 and right:
            back[left[0]] = _joined(to, right, out) or back[left[0]]
    return tuple(back)


def _joined(to: Value, axes: Sequence[int], out: Region) -> Axis | None:
    """The run of one axis that several result axes split, where it is a run."""
    first, *inner = axes
    width = prod(hint(to.shape[j]) for j in inner)
    if any(out[j] != (0, hint(to.shape[j]), 1) for j in inner):
        return None
    start, count, step = out[first]
    if not inner:
        return out[first]
    return (start * width, count * width, 1) if step == 1 else None


def factor(a: Sequence[int], b: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Split the axes of two shapes of equal size into the smallest runs of equal products, in order."""
    runs: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        left: list[int] = []
        right: list[int] = []
        p = q = 1
        if i < len(a):
            left.append(i)
            p, i = a[i], i + 1
        if j < len(b):
            right.append(j)
            q, j = b[j], j + 1
        while p != q:
            if (p < q or j >= len(b)) and i < len(a):
                left.append(i)
                p, i = p * a[i], i + 1
            elif j < len(b):
                right.append(j)
                q, j = q * b[j], j + 1
            else:
                break
        runs.append((left, right))
    return runs


def _clip(axis: Axis, lo: int, hi: int) -> Axis:
    a, n, s = axis
    first = max(0, -(-(lo - a) // s))
    last = min(n, -(-(hi - a) // s))
    return (a + first * s - lo, max(last - first, 0), s)


def _put(r: Region, dim: int, axis: Axis) -> Region:
    return (*r[:dim], axis, *r[dim + 1 :])
