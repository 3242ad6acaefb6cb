"""softmax and its kin: shifted by the row's maximum, in float32 for half precision."""

from __future__ import annotations

import torch

from fusebound.capture.lower.context import Ctx, T, Unlowered, axes, axis, lowering


def _input(c: Ctx, x: T, dtype: torch.dtype | None) -> T:
    """The operand in the type that the user asked for (`dtype=` is a cast that the user wrote)."""
    if dtype is not None and dtype != x.dtype:
        x = c.cast(x, dtype, user=True)
    if not x.dtype.is_floating_point:
        raise Unlowered("softmax of a type that is not real", "F604")
    return x


def shifted(c: Ctx, w: T, dim: int) -> tuple[T, T, T]:
    """Operand minus its maximum, the exponentials, and their sum (axis kept)."""
    z = w - c.reduce("amax", w, (dim,), keep=True)
    e = c("exp", z)
    return z, e, c.reduce("sum", e, (dim,), keep=True)


@lowering("aten.softmax.int")
def softmax(c: Ctx, x: T, dim: int, dtype: torch.dtype | None = None) -> T:
    x = _input(c, x, dtype)
    _, e, total = shifted(c, c.wide(x), axis(dim, x.rank))
    return c.cast(e / total, x.dtype)


@lowering("aten.log_softmax.int")
def log_softmax(c: Ctx, x: T, dim: int, dtype: torch.dtype | None = None) -> T:
    x = _input(c, x, dtype)
    z, _, total = shifted(c, c.wide(x), axis(dim, x.rank))
    return c.cast(z - c("log", total), x.dtype)


def _checked(half_to_float: bool) -> None:
    if half_to_float:
        raise Unlowered("softmax that widens its result")


@lowering("aten._softmax.default")
def raw_softmax(c: Ctx, x: T, dim: int, half_to_float: bool = False) -> T:
    _checked(half_to_float)
    return softmax(c, x, dim)


@lowering("aten._log_softmax.default")
def raw_log_softmax(c: Ctx, x: T, dim: int, half_to_float: bool = False) -> T:
    _checked(half_to_float)
    return log_softmax(c, x, dim)


@lowering("aten.logsumexp.default", "aten.special_logsumexp.default")
def logsumexp(c: Ctx, x: T, dim: list[int], keepdim: bool = False) -> T:
    """Rounded at every step, as eager's composite is; an infinite maximum counts as 0."""
    x = c.cast(x, c.out_dtype)
    dims = axes(dim, x.rank)
    top = c.reduce("amax", x, dims, keep=True)
    top = c.where(c("isinf", top), 0, top)
    total = c.cast(c.reduce("sum", c.wide(c("exp", x - top)), dims, keep=True), x.dtype)
    out = c("log", total) + top
    return out if keepdim else c.reshape(out, tuple(n for i, n in enumerate(x.shape) if i not in dims))
