"""Operators that move elements: views, permutations, slices, concatenations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch

from fusebound.capture.lower.context import Ctx, T, Unlowered, axis, lowering


@lowering(
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten.view_as.default",
    "aten.flatten.using_ints",
    "aten.unflatten.int",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.unsqueeze.default",
    "aten.view_copy.default",
    "aten._reshape_copy.default",
    "aten.unsqueeze_copy.default",
    "aten.squeeze_copy.default",
)
def view(c: Ctx, x: T, *spec: object) -> T:
    """Whatever the spelling, the framework's result says the shape."""
    return c.reshape(x, c.out.shape)  # type: ignore[arg-type]


@lowering(
    "aten.alias.default",
    "aten.alias_copy.default",
    "aten.detach.default",
    "aten.lift_fresh.default",
    "aten.view.dtype",
    "aten.positive.default",
)
def alias(c: Ctx, x: T, *spec: object) -> T:
    if x.dtype != c.out_dtype:
        raise Unlowered("the same bytes read as another type")
    return x


@lowering(
    "aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default", "aten.expand_copy.default"
)
def expand(c: Ctx, x: T, *spec: object, implicit: bool = False) -> T:
    return c.expand(x, c.out.shape)  # type: ignore[arg-type]


@lowering("aten.permute.default", "aten.permute_copy.default")
def permute(c: Ctx, x: T, dims: Sequence[int]) -> T:
    return c.permute(x, [d % x.rank for d in dims])


@lowering("aten.transpose.int", "aten.swapaxes.default", "aten.transpose_copy.int")
def transpose(c: Ctx, x: T, a: int, b: int) -> T:
    perm = list(range(x.rank))
    if perm:
        a, b = a % x.rank, b % x.rank
        perm[a], perm[b] = perm[b], perm[a]
    return c.permute(x, perm)


@lowering("aten.t.default", "aten.numpy_T.default")
def t(c: Ctx, x: T) -> T:
    return c.permute(x, range(x.rank)[::-1])


@lowering("aten.mT.default")
def matrix_transpose(c: Ctx, x: T) -> T:
    return transpose(c, x, -1, -2)


@lowering("aten.movedim.intlist", "aten.movedim.int")
def movedim(c: Ctx, x: T, source: Sequence[int] | int, target: Sequence[int] | int) -> T:
    src = [axis(d, x.rank) for d in ([source] if isinstance(source, int) else source)]
    dst = [axis(d, x.rank) for d in ([target] if isinstance(target, int) else target)]
    rest = iter(d for d in range(x.rank) if d not in src)
    return c.permute(x, [src[dst.index(i)] if i in dst else next(rest) for i in range(x.rank)])


def bounds(n: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Python's rules for a slice with a positive step."""
    lo, hi, _ = slice(start, end).indices(n)
    return lo, max(lo, hi)


@lowering("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(c: Ctx, x: T, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> T:
    dim = axis(dim, x.rank)
    lo, hi = bounds(x.shape[dim], start, end)
    return c.slice(x, dim, lo, -(-(hi - lo) // step), step)


@lowering("aten.narrow.default", "aten.narrow_copy.default")
def narrow(c: Ctx, x: T, dim: int, start: int, length: int) -> T:
    dim = axis(dim, x.rank)
    return c.slice(x, dim, start % max(x.shape[dim], 1) if start < 0 else start, length)


def pick(c: Ctx, x: T, dim: int, index: int) -> T:
    """One place of `dim`, the axis dropped."""
    shape = (*x.shape[:dim], *x.shape[dim + 1 :])
    return c.reshape(c.slice(x, dim, index % x.shape[dim], 1), shape)


@lowering("aten.select.int", "aten.select_copy.int")
def select(c: Ctx, x: T, dim: int, index: int) -> T:
    return pick(c, x, axis(dim, x.rank), index)


def pieces(c: Ctx, x: T, dim: int, sizes: Sequence[int]) -> tuple[T, ...]:
    starts = accumulate(sizes, initial=0)
    return tuple(c.slice(x, dim, start, size) for start, size in zip(starts, sizes, strict=False))


@lowering(
    "aten.split.Tensor",
    "aten.split.sizes",
    "aten.split_with_sizes.default",
    "aten.chunk.default",
    "aten.unsafe_split.Tensor",
    "aten.unsafe_chunk.default",
    "aten.tensor_split.sections",
    "aten.tensor_split.indices",
    "aten.split_copy.Tensor",
    "aten.split_with_sizes_copy.default",
    "aten.unsafe_split_with_sizes.default",
)
def split(c: Ctx, x: T, spec: object, dim: int = 0) -> tuple[T, ...]:
    """Whatever the spelling, the framework's results say the sizes."""
    dim = axis(dim, x.rank)
    return pieces(c, x, dim, [int(o.shape[dim]) for o in c.outs])  # type: ignore[arg-type]


@lowering("aten.unbind.int", "aten.unbind_copy.int")
def unbind(c: Ctx, x: T, dim: int = 0) -> tuple[T, ...]:
    dim = axis(dim, x.rank)
    return tuple(pick(c, x, dim, i) for i in range(x.shape[dim]))


@lowering("aten.cat.default", "aten.concat.default", "aten.concatenate.default")
def cat(c: Ctx, xs: Sequence[T], dim: int = 0) -> T:
    """Empty 1-d tensors are ignored, whatever the rank of the others (a rule of old that the framework
    keeps)."""
    rank = len(c.out.shape)
    real = [c.cast(x, c.out_dtype) for x in xs if not (x.shape == (0,) and rank != 1)]
    out = c.cat(real, axis(dim, rank))
    return c.copy(out) if len(real) == 1 else out


@lowering("aten.stack.default")
def stack(c: Ctx, xs: Sequence[T], dim: int = 0) -> T:
    dim = dim % len(c.out.shape)
    out = c.cat([c.unsqueeze(c.cast(x, c.out_dtype), dim) for x in xs], dim)
    return c.copy(out) if len(xs) == 1 else out


@lowering("aten.repeat.default", "aten.tile.default")
def repeat(c: Ctx, x: T, times: Sequence[int]) -> T:
    """An expanded axis in front of each repeated one, then merged."""
    if len(times) < x.rank:
        times = [*(1,) * (x.rank - len(times)), *times]
    x = c.reshape(x, (*(1,) * (len(times) - x.rank), *x.shape))
    split_shape = [d for n in x.shape for d in (1, n)]
    wide_shape = [d for n, k in zip(x.shape, times, strict=True) for d in (k, n)]
    if all(k == 1 for k in times):
        return c.copy(x)
    final = [n * k for n, k in zip(x.shape, times, strict=True)]
    return c.reshape(c.expand(c.reshape(x, split_shape), wide_shape), final)


@lowering("aten.repeat_interleave.self_int")
def repeat_interleave(c: Ctx, x: T, times: int, dim: int | None = None, output_size: int | None = None) -> T:
    if dim is None:
        x, dim = c.reshape(x, (x.numel,)), 0
    dim = axis(dim, x.rank)
    inner = c.unsqueeze(x, dim + 1)
    wide = c.expand(inner, (*inner.shape[: dim + 1], times, *inner.shape[dim + 2 :]))
    return c.reshape(wide, (*x.shape[:dim], x.shape[dim] * times, *x.shape[dim + 1 :]))


@lowering("aten.pixel_shuffle.default")
def pixel_shuffle(c: Ctx, x: T, factor: int) -> T:
    *lead, channels, h, w = x.shape
    n = len(lead)
    split_shape = (*lead, channels // factor**2, factor, factor, h, w)
    x = c.permute(c.reshape(x, split_shape), (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return c.reshape(x, c.out.shape)  # type: ignore[arg-type]


@lowering("aten.pixel_unshuffle.default")
def pixel_unshuffle(c: Ctx, x: T, factor: int) -> T:
    *lead, channels, h, w = x.shape
    n = len(lead)
    split_shape = (*lead, channels, h // factor, factor, w // factor, factor)
    x = c.permute(c.reshape(x, split_shape), (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return c.reshape(x, c.out.shape)  # type: ignore[arg-type]


@lowering("aten.clone.default", "aten.contiguous.default")
def clone(c: Ctx, x: T, memory_format: torch.memory_format | None = None) -> T:
    return c.copy(x)


@lowering("aten.copy.default")
def copy(c: Ctx, x: T, source: T, non_blocking: bool = False) -> T:
    out = c.cast(source, x.dtype) if source.dtype != x.dtype else c.copy(source)
    return c.expand(out, x.shape)
