"""Moves with a boundary: pad, roll, flip, triangles, scattered slices."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import torch

from fusebound.capture.lower.context import Ctx, Number, T, Unlowered, axis, lowering
from fusebound.capture.lower.move import bounds
from fusebound.capture.overlap import folded


@lowering("aten.constant_pad_nd.default")
def constant_pad(c: Ctx, x: T, pad: Sequence[int], value: Number = 0) -> T:
    """`pad` counts from the last axis, pairs of (before, after); a negative amount crops."""
    lo, hi = [0] * x.rank, [0] * x.rank
    for k in range(len(pad) // 2):
        lo[x.rank - 1 - k], hi[x.rank - 1 - k] = pad[2 * k], pad[2 * k + 1]
    for d in range(x.rank):
        cut_lo, cut_hi = max(-lo[d], 0), max(-hi[d], 0)
        x = c.slice(x, d, cut_lo, x.shape[d] - cut_lo - cut_hi)
    lo, hi = [max(n, 0) for n in lo], [max(n, 0) for n in hi]
    if not any(lo) and not any(hi):
        return c.copy(x)
    shape = tuple(n + a + b for n, a, b in zip(x.shape, lo, hi, strict=True))
    kind = float if x.dtype.is_floating_point else bool if x.dtype == torch.bool else int
    return T(c.builder.emit("pad", x.id, shape=shape, lo=tuple(lo), value=kind(value)), c)


@lowering("aten.pad.default")
def pad(c: Ctx, x: T, amounts: Sequence[int], mode: str = "constant", value: float | None = None) -> T:
    if mode != "constant":
        raise Unlowered(f"padding by {mode}")
    return constant_pad(c, x, amounts, value or 0.0)


@lowering("aten.flip.default")
def flip(c: Ctx, x: T, dims: Sequence[int]) -> T:
    found = tuple(sorted({axis(d, x.rank) for d in dims}))
    return T(c.builder.emit("flip", x.id, dims=found), c) if found and x.rank else c.copy(x)


@lowering("aten.rot90.default")
def rot90(c: Ctx, x: T, k: int = 1, dims: Sequence[int] = (0, 1)) -> T:
    """Quarter turns from the first axis to the second: an exchange of the two, and flips."""
    a, b = (axis(d, x.rank) for d in dims)
    perm = list(range(x.rank))
    perm[a], perm[b] = b, a
    match k % 4:
        case 1:
            return c.permute(flip(c, x, (b,)), perm)
        case 2:
            return flip(c, x, (a, b))
        case 3:
            return c.permute(flip(c, x, (a,)), perm)
        case _:
            return c.copy(x)


@lowering("aten.roll.default")
def roll(c: Ctx, x: T, shifts: Sequence[int] | int, dims: Sequence[int] | int = ()) -> T:
    """Each axis is cut in two, and the parts change places."""
    shifts = [shifts] if isinstance(shifts, int) else shifts
    dims = [dims] if isinstance(dims, int) else dims
    if not dims:
        flat = _roll(c, c.reshape(x, (x.numel,)), shifts[0], 0)
        out = c.reshape(flat, x.shape)
    else:
        out = x
        for s, d in zip(shifts, dims, strict=True):
            out = _roll(c, out, s, axis(d, x.rank))
    return c.copy(out) if out.id == x.id else out


def _roll(c: Ctx, x: T, shift: int, dim: int) -> T:
    n = x.shape[dim]
    k = shift % n if n else 0
    if k == 0:
        return x
    return c.cat([c.slice(x, dim, n - k, k), c.slice(x, dim, 0, n - k)], dim)


@lowering("aten.channel_shuffle.default")
def channel_shuffle(c: Ctx, x: T, groups: int) -> T:
    n, channels, *rest = x.shape
    assert gcd(channels, groups) == groups
    split = c.reshape(x, (n, groups, channels // groups, *rest))
    return c.reshape(c.permute(split, (0, 2, 1, *range(3, split.rank))), x.shape)


def _triangle(c: Ctx, x: T, diagonal: int, relation: str) -> T:
    """Keep the places whose column - row is ≤ (tril) or ≥ (triu) the diagonal."""
    rows, columns = x.shape[-2:]
    row = c.iota((rows, columns), 0, torch.int64)
    column = c.iota((rows, columns), 1, torch.int64)
    return c.where(c(relation, column - row, diagonal), x, 0)


@lowering("aten.tril.default")
def tril(c: Ctx, x: T, diagonal: int = 0) -> T:
    return _triangle(c, x, diagonal, "le")


@lowering("aten.triu.default")
def triu(c: Ctx, x: T, diagonal: int = 0) -> T:
    return _triangle(c, x, diagonal, "ge")


def _write(c: Ctx, x: T, part: T, dim: int, start: int, step: int) -> T:
    """`x` with the places `start, start+step, …` of `dim` replaced.

    Eager writes into a copy of the memory of `x`, so that elements that lie in one place change together.
    """
    strides = [s for s in x.value.strides if isinstance(s, int)]
    if len(strides) == x.rank and folded(x.shape, strides):
        raise Unlowered("it writes into a copy of memory that several indices reach", "F610")
    if part.shape == x.shape:
        return c.copy(part)
    id = c.builder.emit("slice_scatter", x.id, c.cast(part, x.dtype).id, dim=dim, start=start, step=step)
    return T(id, c)


@lowering("aten.slice_scatter.default")
def slice_scatter(
    c: Ctx, x: T, part: T, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> T:
    dim = axis(dim, x.rank)
    lo, hi = bounds(x.shape[dim], start, end)
    size = -(-(hi - lo) // step)
    if size == 0:
        return c.copy(x)
    shape = (*x.shape[:dim], size, *x.shape[dim + 1 :])
    return _write(c, x, c.expand(part, shape), dim, lo, step)


@lowering("aten.select_scatter.default")
def select_scatter(c: Ctx, x: T, part: T, dim: int, index: int) -> T:
    dim = axis(dim, x.rank)
    return _write(c, x, c.unsqueeze(part, dim), dim, index % x.shape[dim], 1)
