"""Normalisations: moments in float32 (float64 for float64), two passes, as eager computes them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

from fusebound.capture.lower.context import Ctx, T, Unlowered, axis, lowering
from fusebound.capture.lower.statistic import again_centred, running


def moments(c: Ctx, w: T, dims: Sequence[int]) -> tuple[T, T, T]:
    """Centred values, mean and biased variance (axes kept).

    The sum stays in float64 until it is divided: eager's running mean of equal values is that value.
    """
    n = prod(w.shape[d] for d in dims)
    total = c.reduce("sum", w, dims, keep=True, dtype=torch.float64)
    mean = c.cast(total / float(n), w.dtype)
    centred = w - mean
    squares = centred * centred
    if w.dtype == torch.float64:
        centred, squares = again_centred(c, centred, dims)
    return centred, mean, c.mean(squares, dims, keep=True)


def _affine(c: Ctx, y: T, weight: T | None, bias: T | None) -> T:
    """`y·weight + bias`; a missing bias is a zero that eager adds too: it turns -0 into 0."""
    if weight is not None:
        y = y * c.cast(weight, y.dtype)
    return y + (0.0 if bias is None else c.cast(bias, y.dtype))


def _require_real(*xs: T | None) -> None:
    if any(x is not None and not x.dtype.is_floating_point for x in xs):
        raise Unlowered("a normalisation of a type that is not real", "F604")


def _layer_norm(
    c: Ctx, x: T, shape: Sequence[int], weight: T | None, bias: T | None, eps: float
) -> tuple[T, T, T]:
    _require_real(x, weight, bias)
    w = c.wide(x)
    dims = range(x.rank - len(shape), x.rank)
    centred, mean, var = moments(c, w, dims)
    rstd = c("rsqrt", var + eps)
    return c.cast(_affine(c, centred * rstd, weight, bias), x.dtype), mean, rstd


@lowering("aten.layer_norm.default")
def layer_norm(
    c: Ctx, x: T, shape: Sequence[int], weight: T | None = None, bias: T | None = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> T:  # fmt: skip
    return _layer_norm(c, x, shape, weight, bias, eps)[0]


@lowering("aten.native_layer_norm.default")
def native_layer_norm(
    c: Ctx, x: T, shape: Sequence[int], weight: T | None, bias: T | None, eps: float
) -> tuple[T, T, T]:
    y, mean, rstd = _layer_norm(c, x, shape, weight, bias, eps)
    stat = [c.cast(s, torch_of(c, i)) for i, s in ((1, running(c, mean)), (2, rstd))]
    return y, stat[0], stat[1]


def torch_of(c: Ctx, i: int) -> torch.dtype:
    """The type of the framework's i-th output."""
    return getattr(torch, c.outs[i].dtype)


@lowering("aten.rms_norm.default")
def rms_norm(c: Ctx, x: T, shape: Sequence[int], weight: T | None = None, eps: float | None = None) -> T:
    """Everything in float32, one rounding at the end; a missing eps is the wide type's epsilon."""
    _require_real(x, weight)
    w = c.wide(x)
    dims = range(x.rank - len(shape), x.rank)
    eps = torch.finfo(w.dtype).eps if eps is None else eps
    rstd = c("rsqrt", c.mean(w * w, dims, keep=True) + eps)
    y = w * rstd
    return c.cast(y if weight is None else y * c.cast(weight, y.dtype), c.out_dtype)


def _per_channel(c: Ctx, p: T | None, rank: int, dtype: torch.dtype) -> T | None:
    """A vector over axis 1, ready to broadcast."""
    if p is None:
        return None
    return c.cast(c.reshape(p, (1, p.shape[0], *(1,) * (rank - 2))), dtype)


@lowering("aten.batch_norm.default")
def batch_norm(
    c: Ctx, x: T, weight: T | None, bias: T | None, mean: T | None, var: T | None, training: bool,
    momentum: float, eps: float, cudnn_enabled: bool = True,
) -> T:  # fmt: skip
    _require_real(x, weight, bias, mean, var)
    if training or mean is None or var is None:
        raise Unlowered("batch statistics that update a buffer in place")
    return _normalise(c, x, _wide_channel(c, mean, x), _wide_channel(c, var, x), weight, bias, eps)


def _wide_channel(c: Ctx, p: T, x: T) -> T:
    out = _per_channel(c, p, x.rank, _stat_type(x))
    assert out is not None
    return out


def _stat_type(x: T) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _normalise(c: Ctx, x: T, mean: T, var: T, weight: T | None, bias: T | None, eps: float) -> T:
    """`x·factor + (bias - mean·factor)` with `factor = weight·rstd`, as eager has it: two numbers per channel, and two
    fused multiply-adds."""
    w = c.wide(x)
    factor = c("rsqrt", var + eps)
    scale = _per_channel(c, weight, x.rank, w.dtype)
    if scale is not None:
        factor = factor * scale
    shift = _per_channel(c, bias, x.rank, w.dtype)
    base = c("neg", mean * factor) if shift is None else c("fma", c("neg", mean), factor, shift)
    return c.cast(c("fma", w, factor, base), x.dtype)


def _batch_statistics(c: Ctx, x: T, eps: float) -> tuple[T, T, T, T, tuple[int, ...]]:
    """Centred values, mean, variance and 1/σ over all axes but the channel's."""
    dims = (0, *range(2, x.rank))
    centred, mean, var = moments(c, c.wide(x), dims)
    return centred, mean, var, c("rsqrt", var + eps), dims


def _scale_shift(c: Ctx, y: T, weight: T | None, bias: T | None, dtype: torch.dtype) -> T:
    scale, shift = (_per_channel(c, p, y.rank, y.dtype) for p in (weight, bias))
    y = y if scale is None else y * scale
    return c.cast(y + (0.0 if shift is None else shift), dtype)


@lowering("aten._native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    c: Ctx, x: T, weight: T | None, bias: T | None, training: bool, momentum: float, eps: float
) -> tuple[T, T, T]:
    """What instance_norm becomes; it always uses the batch's statistics."""
    _require_real(x, weight, bias)
    centred, mean, _, rstd, _ = _batch_statistics(c, x, eps)
    y = _scale_shift(c, centred * rstd, weight, bias, x.dtype)
    return y, _flat(c, mean, 1), _flat(c, rstd, 2)


def _flat(c: Ctx, stat: T, out: int) -> T:
    return c.cast(c.reshape(stat, (stat.numel,)), torch_of(c, out))


@lowering("aten._native_batch_norm_legit_functional.default")
def batch_norm_training(
    c: Ctx, x: T, weight: T | None, bias: T | None, running_mean: T, running_var: T, training: bool,
    momentum: float, eps: float,
) -> tuple[T, ...]:  # fmt: skip
    """Batch statistics, and running statistics with the unbiased variance."""
    _require_real(x, weight, bias, running_mean, running_var)
    if not training:
        raise Unlowered("functional batch norm outside training")
    centred, mean, var, rstd, dims = _batch_statistics(c, x, eps)
    y = _scale_shift(c, centred * rstd, weight, bias, x.dtype)
    count = prod(x.shape[d] for d in dims)
    if count < 2:
        raise Unlowered("batch statistics of one element")
    unbiased = var * (count / (count - 1))
    running = [
        c.cast(_blend(c, old, c.reshape(new, old.shape), momentum), old.dtype)
        for old, new in ((running_mean, mean), (running_var, unbiased))
    ]
    return y, _flat(c, mean, 1), _flat(c, rstd, 2), running[0], running[1]


def _blend(c: Ctx, old: T, new: T, momentum: float) -> T:
    return c.cast(old, new.dtype) * (1 - momentum) + new * momentum


def _group_norm(c: Ctx, x: T, weight: T | None, bias: T | None, groups: int, eps: float) -> tuple[T, T, T]:
    _require_real(x, weight, bias)
    n, channels, *rest = x.shape
    grouped = c.reshape(x, (n, groups, channels // groups, prod(rest)))
    centred, mean, var = moments(c, c.wide(grouped), (2, 3))
    rstd = c("rsqrt", var + eps)
    y = centred * rstd
    for p, op in ((weight, "mul"), (bias, "add")):
        if p is not None:
            y = c(op, y, c.cast(c.reshape(p, (1, groups, channels // groups, 1)), y.dtype))
    return c.reshape(c.cast(y, x.dtype), x.shape), mean, rstd


@lowering("aten.group_norm.default")
def group_norm(
    c: Ctx, x: T, groups: int, weight: T | None = None, bias: T | None = None, eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> T:  # fmt: skip
    return _group_norm(c, x, weight, bias, groups, eps)[0]


@lowering("aten.native_group_norm.default")
def native_group_norm(
    c: Ctx, x: T, weight: T | None, bias: T | None, n: int, channels: int, hw: int, groups: int, eps: float
) -> tuple[T, T, T]:
    y, mean, rstd = _group_norm(c, x, weight, bias, groups, eps)
    mean, rstd = (
        c.cast(c.reshape(s, (n, groups)), torch_of(c, i)) for i, s in ((1, running(c, mean)), (2, rstd))
    )
    return y, mean, rstd


@lowering("aten.cosine_similarity.default")
def cosine_similarity(c: Ctx, a: T, b: T, dim: int = 1, eps: float = 1e-8) -> T:
    """Both operands divided by their norms (at least eps), multiplied, summed."""
    dtype = c.out_dtype
    shape = torch.broadcast_shapes(a.shape, b.shape)
    a, b = (c.expand(c.cast(x, dtype), shape) for x in (a, b))
    dim = axis(dim, a.rank)
    unit = []
    for x in (a, b):
        w = c.wide(x)
        norm = c.cast(c("sqrt", c.reduce("sum", w * w, (dim,), keep=True)), dtype)
        unit.append(x / c.clamp(norm, eps, None))
    return c.cast(c.reduce("sum", c.wide(unit[0] * unit[1]), (dim,)), dtype)
