"""Losses: pointwise or row-wise terms, then `reduction` (0 none, 1 mean, 2 sum)."""

from __future__ import annotations

import torch

from fusebound.capture.lower.arithmetic import common
from fusebound.capture.lower.context import Ctx, T, Unlowered, lowering

_NONE, _MEAN, _SUM = 0, 1, 2


def reduced(c: Ctx, term: T, reduction: int) -> T:
    """Apply the reduction to terms that were already rounded to the loss's type."""
    if reduction == _NONE:
        return term
    dims = range(term.rank)
    w = c.wide(term)
    total = c.mean(w, dims) if reduction == _MEAN else c.reduce("sum", w, dims)
    return c.cast(total, term.dtype)


def _difference(c: Ctx, a: T, b: T, *wide: torch.dtype) -> T:
    """`a - b` in their common type; in float32 for the half-precision types that are named."""
    dtype = common(a, b)
    if not dtype.is_floating_point:
        raise Unlowered("a loss of a type that is not real", "F604")
    a, b = c.cast(a, dtype), c.cast(b, dtype)
    return c.wide(a) - c.wide(b) if dtype in wide else a - b


def _finish(c: Ctx, wide: T, reduction: int) -> T:
    return reduced(c, c.cast(wide, c.out_dtype), reduction)


@lowering("aten.mse_loss.default")
def mse_loss(c: Ctx, x: T, target: T, reduction: int = _MEAN) -> T:
    d = _difference(c, x, target)
    return _finish(c, d * d, reduction)


@lowering("aten.l1_loss.default")
def l1_loss(c: Ctx, x: T, target: T, reduction: int = _MEAN) -> T:
    return _finish(c, c("abs", _difference(c, x, target)), reduction)


@lowering("aten.smooth_l1_loss.default")
def smooth_l1_loss(c: Ctx, x: T, target: T, reduction: int = _MEAN, beta: float = 1.0) -> T:
    z = c("abs", _difference(c, x, target, torch.bfloat16))
    if beta == 0:
        return _finish(c, z, reduction)
    return _finish(c, c.where(z < beta, z * 0.5 * z / beta, z - 0.5 * beta), reduction)


@lowering("aten.huber_loss.default")
def huber_loss(c: Ctx, x: T, target: T, reduction: int = _MEAN, delta: float = 1.0) -> T:
    z = c("abs", _difference(c, x, target, torch.float16))
    return _finish(c, c.where(z <= delta, z * 0.5 * z, (z - 0.5 * delta) * delta), reduction)


@lowering("aten.kl_div.default")
def kl_div(c: Ctx, x: T, target: T, reduction: int = _MEAN, *, log_target: bool = False) -> T:
    """`target·(log target - x)`, with 0·log 0 = 0; every step rounds, as in eager's composite."""
    term = c("exp", target) * (target - x) if log_target else xlogy(c, target, target) - target * x
    return reduced(c, term, reduction)


def xlogy(c: Ctx, x: T, y: T) -> T:
    """`x·log y`, 0 where x is 0 (unless y is NaN)."""
    out = c.where(c("eq", x, 0), 0, x * c("log", y))
    return c.where(c("isnan", y), float("nan"), out)


@lowering("aten.xlogy.Tensor", "aten.special_xlogy.default")
def xlogy_tensor(c: Ctx, x: T, y: T) -> T:
    dtype = c.out_dtype
    x, y = c.cast(x, dtype), c.cast(y, dtype)
    shape = torch.broadcast_shapes(x.shape, y.shape)
    return xlogy(c, c.expand(x, shape), c.expand(y, shape))


@lowering("aten.binary_cross_entropy_with_logits.default")
def bce_with_logits(
    c: Ctx, x: T, target: T, weight: T | None = None, pos_weight: T | None = None, reduction: int = _MEAN
) -> T:
    """`(1 - t)·x - f·log σ(x)` with `f = (w_pos - 1)·t + 1`; eager rounds log σ and each product."""
    log_sig = c.wide(x)
    log_sig = c.cast(c.clamp(log_sig, None, 0) - c("log1p", c("exp", -c("abs", log_sig))), x.dtype)
    rest = (1.0 - target) * x
    factor = None if pos_weight is None else (pos_weight - 1.0) * target + 1.0
    term = rest - (log_sig if factor is None else factor * log_sig)
    return reduced(c, term if weight is None else term * weight, reduction)


def class_axis(x: T) -> int:
    return 1 if x.rank > 1 else 0


def picked(c: Ctx, x: T, target: T, ignore_index: int) -> tuple[T, T, T]:
    """`x[target]` along the class axis, safe places (ignored ones are 0), and which are kept."""
    if target.dtype not in (torch.int64, torch.int32):
        raise Unlowered("class targets that are no integers")
    kept = c("ne", target, ignore_index)
    safe = c.where(kept, target, 0)
    dim = class_axis(x)
    index = c.unsqueeze(safe, dim)
    out = T(c.builder.emit("gather", x.id, index.id, dim=dim), c)
    return c.reshape(out, target.shape), safe, kept


def _class_weight(c: Ctx, weight: T | None, safe: T, kept: T, dtype: torch.dtype) -> T:
    """The weight of each target's class; 0 for ignored ones."""
    if weight is None:
        return c.cast(kept, dtype)
    flat = T(c.builder.emit("index_select", weight.id, safe.id, dim=0), c)
    return c.where(kept, c.cast(flat, dtype), 0)


def _negative(c: Ctx, log_p: T, w: T, kept: T) -> T:
    return c.where(kept, -(log_p * w), 0)


def _weighted(c: Ctx, term: T, w: T, reduction: int, dtype: torch.dtype) -> T:
    """Sum, or mean over the weights (NaN where every target is ignored)."""
    if reduction == _NONE:
        return c.cast(term, dtype)
    dims = range(term.rank)
    total = c.reduce("sum", term, dims)
    return c.cast(total / c.reduce("sum", w, dims) if reduction == _MEAN else total, dtype)


@lowering("aten.nll_loss.default", "aten.nll_loss_nd.default", "aten.nll_loss2d.default")
def nll_loss(
    c: Ctx, x: T, target: T, weight: T | None = None, reduction: int = _MEAN, ignore_index: int = -100
) -> T:
    return _nll(c, x, target, weight, reduction, ignore_index)[0]


def _nll(c: Ctx, x: T, target: T, weight: T | None, reduction: int, ignore_index: int) -> tuple[T, T]:
    log_p, safe, kept = picked(c, x, target, ignore_index)
    log_p = c.wide(log_p)
    w = _class_weight(c, weight, safe, kept, log_p.dtype)
    term = _negative(c, log_p, w, kept)
    return _weighted(c, term, w, reduction, x.dtype), w


@lowering("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
def nll_loss_forward(
    c: Ctx, x: T, target: T, weight: T | None, reduction: int, ignore_index: int
) -> tuple[T, T]:
    out, w = _nll(c, x, target, weight, reduction, ignore_index)
    if reduction == _NONE:
        return out, c.full(0, (), x.dtype)
    return out, c.cast(c.reduce("sum", w, range(w.rank)), x.dtype)


@lowering("aten.cross_entropy_loss.default")
def cross_entropy(
    c: Ctx, x: T, target: T, weight: T | None = None, reduction: int = _MEAN, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> T:  # fmt: skip
    """log-softmax over the classes, then the target's class (or the target's distribution)."""
    if not x.dtype.is_floating_point:
        raise Unlowered("a loss of a type that is not real", "F604")
    dim = class_axis(x)
    if target.shape == x.shape:
        return _soft_targets(c, x, target, weight, reduction, label_smoothing, dim)
    w = c.wide(x)
    top = c.reduce("amax", w, (dim,), keep=True)
    log_total = c("log", c.reduce("sum", c("exp", w - top), (dim,), keep=True))
    raw, safe, kept = picked(c, x, target, ignore_index)
    flat = target.shape
    # The gathered logit first, then the shift: the same numbers, without storing every log-probability.
    log_p = c.cast((c.wide(raw) - c.reshape(top, flat)) - c.reshape(log_total, flat), x.dtype)
    factor = _class_weight(c, weight, safe, kept, w.dtype)
    term = _negative(c, c.wide(log_p), factor, kept)
    if label_smoothing == 0:
        return _weighted(c, term, factor, reduction, x.dtype)
    smooth = _smoothing(c, (w - top) - log_total, weight, kept, dim)
    loss = _weighted(c, term, factor, reduction, w.dtype)
    spread = _weighted(c, smooth, factor, reduction, w.dtype)
    eps = label_smoothing
    return c.cast(loss * (1 - eps) + spread * (eps / x.shape[dim]), x.dtype)


def _smoothing(c: Ctx, log_p: T, weight: T | None, kept: T, dim: int) -> T:
    """Minus the (weighted) sum of all classes' log-probabilities; 0 for ignored targets."""
    if weight is not None:
        log_p = log_p * _along(c, weight, log_p, dim)
    return c.where(kept, -c.reduce("sum", log_p, (dim,)), 0)


def _along(c: Ctx, weight: T, x: T, dim: int) -> T:
    """A vector over the class axis, ready to broadcast."""
    return c.cast(c.reshape(weight, tuple(n if i == dim else 1 for i, n in enumerate(x.shape))), x.dtype)


def _soft_targets(c: Ctx, x: T, target: T, weight: T | None, reduction: int, smoothing: float, dim: int) -> T:
    """Targets that are probabilities; the mean is over rows, not weights."""
    w = c.wide(x)
    z = w - c.reduce("amax", w, (dim,), keep=True)
    log_p = c.wide(c.cast(z - c("log", c.reduce("sum", c("exp", z), (dim,), keep=True)), x.dtype))
    t = c.wide(target)
    if smoothing > 0:
        t = t * (1 - smoothing) + smoothing / x.shape[dim]
    term = log_p * t
    if weight is not None:
        term = term * _along(c, weight, term, dim)
    if reduction == _NONE:
        return c.cast(-c.reduce("sum", term, (dim,)), x.dtype)
    total = -c.reduce("sum", term, range(term.rank))
    rows = x.numel // x.shape[dim]
    return c.cast(total / float(rows) if reduction == _MEAN else total, x.dtype)
