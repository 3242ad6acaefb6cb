"""Gradients of activations, softmax, dropout and losses, by the formulas of ATen's CPU kernels.

Where an operand is NaN and eager's vector lanes and scalar tail disagree, the lanes' answer is given.
"""

from __future__ import annotations

import math

import torch

from fusebound.capture.lower.context import Ctx, Number, T, Unlowered, axis, lowering
from fusebound.capture.lower.loss import class_axis

_NONE, _MEAN = 0, 1


def _wide(c: Ctx, *xs: T) -> list[T]:
    return [c.wide(x) for x in xs]


# -- activations


@lowering("aten.threshold_backward.default")
def threshold_backward(c: Ctx, grad: T, x: T, bound: Number) -> T:
    return c.where(c.wide(x) <= bound, 0, grad)


@lowering("aten.hardtanh_backward.default")
def hardtanh_backward(c: Ctx, grad: T, x: T, lo: Number, hi: Number) -> T:
    w = c.wide(x)
    return c.where(c("and", w > lo, w < hi), grad, 0)


@lowering("aten.sigmoid_backward.default")
def sigmoid_backward(c: Ctx, grad: T, y: T) -> T:
    g, w = _wide(c, grad, y)
    return c.cast(g * (1.0 - w) * w, grad.dtype)


@lowering("aten.tanh_backward.default")
def tanh_backward(c: Ctx, grad: T, y: T) -> T:
    g, w = _wide(c, grad, y)
    return c.cast(g * (1.0 - w * w), grad.dtype)


@lowering("aten.gelu_backward.default")
def gelu_backward(c: Ctx, grad: T, x: T, approximate: str = "none") -> T:
    g, w = _wide(c, grad, x)
    if approximate == "none":
        cdf = (c("erf", w * math.sqrt(0.5)) + 1.0) * 0.5
        pdf = c("exp", w * w * -0.5) * (1 / math.sqrt(2 * math.pi))
        return c.cast(g * (cdf + w * pdf), grad.dtype)
    beta, kappa = math.sqrt(2 / math.pi), 0.044715
    square = w * w
    t = c("tanh", (w + square * w * kappa) * beta)
    left = w * 0.5 * (1.0 - t * t) * ((square * (3 * kappa) + 1.0) * beta)
    return c.cast(g * ((t + 1.0) * 0.5 + left), grad.dtype)


@lowering("aten.silu_backward.default")
def silu_backward(c: Ctx, grad: T, x: T) -> T:
    g, w = _wide(c, grad, x)
    s = 1.0 / (c("exp", -w) + 1.0)
    return c.cast(g * s * (w * (1.0 - s) + 1.0), grad.dtype)


@lowering("aten.hardswish_backward.default")
def hardswish_backward(c: Ctx, grad: T, x: T) -> T:
    g, w = _wide(c, grad, x)
    inside = g * (w / 3.0 + 0.5)
    return c.cast(c.where(w <= -3.0, 0, c.where(w >= 3.0, g, inside)), grad.dtype)


@lowering("aten.hardsigmoid_backward.default")
def hardsigmoid_backward(c: Ctx, grad: T, x: T) -> T:
    """ATen's sixth is a float32 number, in float64 too."""
    g, w = _wide(c, grad, x)
    return c.cast(c.where(c("and", w > -3.0, w < 3.0), g * 0.1666666716337204, 0), grad.dtype)


@lowering("aten.leaky_relu_backward.default")
def leaky_relu_backward(c: Ctx, grad: T, x: T, slope: Number, of_result: bool) -> T:
    g, w = _wide(c, grad, x)
    return c.cast(c.where(w > 0.0, g, g * slope), grad.dtype)


@lowering("aten.elu_backward.default")
def elu_backward(
    c: Ctx, grad: T, alpha: Number, scale: Number, input_scale: Number, of_result: bool, x: T
) -> T:
    g, w = _wide(c, grad, x)
    if of_result:
        below = g * input_scale * (w + alpha * scale)
    else:
        below = g * (input_scale * alpha * scale) * c("exp", w * input_scale)
    return c.cast(c.where(w > 0.0, g * scale, below), grad.dtype)


@lowering("aten.softplus_backward.default")
def softplus_backward(c: Ctx, grad: T, x: T, beta: Number, bound: Number) -> T:
    g, w = _wide(c, grad, x)
    z = c("exp", w * beta)
    return c.cast(c.where(w * beta > bound, g, g * z / (z + 1.0)), grad.dtype)


# -- softmax, dropout


def _real(input_dtype: torch.dtype, grad: T) -> None:
    if input_dtype != grad.dtype:
        raise Unlowered("the gradient of a softmax that widened its result")


@lowering("aten._softmax_backward_data.default")
def softmax_backward(c: Ctx, grad: T, y: T, dim: int, input_dtype: torch.dtype) -> T:
    _real(input_dtype, grad)
    g, w = _wide(c, grad, y)
    total = c.reduce("sum", g * w, (axis(dim, y.rank),), keep=True)
    return c.cast((g - total) * w, grad.dtype)


@lowering("aten._log_softmax_backward_data.default")
def log_softmax_backward(c: Ctx, grad: T, y: T, dim: int, input_dtype: torch.dtype) -> T:
    _real(input_dtype, grad)
    g, w = _wide(c, grad, y)
    return c.cast(g - c("exp", w) * c.reduce("sum", g, (axis(dim, y.rank),), keep=True), grad.dtype)


@lowering("aten.native_dropout_backward.default")
def dropout_backward(c: Ctx, grad: T, mask: T, scale: float) -> T:
    return grad * c.cast(mask, grad.dtype) * scale


# -- losses


def _of_loss(c: Ctx, grad: T, x: T, reduction: int) -> T:
    """The incoming gradient, of one number or of every term."""
    return c.expand(grad, x.shape) if reduction != _NONE else grad


@lowering("aten.mse_loss_backward.default")
def mse_loss_backward(c: Ctx, grad: T, x: T, target: T, reduction: int) -> T:
    norm = 2.0 / x.numel if reduction == _MEAN else 2.0
    g, w, t = _wide(c, _of_loss(c, grad, x, reduction), x, target)
    return c.cast((w - t) * norm * g, x.dtype)


@lowering("aten.smooth_l1_loss_backward.default")
def smooth_l1_loss_backward(c: Ctx, grad: T, x: T, target: T, reduction: int, beta: float) -> T:
    norm = 1.0 / x.numel if reduction == _MEAN else 1.0
    g, w, t = _wide(c, _of_loss(c, grad, x, reduction), x, target)
    d = w - t
    inside = g * norm * d / beta if beta else c.where(d < 0, g * -norm, g * norm)
    outside = c.where(d <= -beta, g * -norm, c.where(d >= beta, g * norm, inside))
    return c.cast(outside, x.dtype)


@lowering("aten.huber_loss_backward.default")
def huber_loss_backward(c: Ctx, grad: T, x: T, target: T, reduction: int, delta: float) -> T:
    norm = 1.0 / x.numel if reduction == _MEAN else 1.0
    g, w, t = _wide(c, _of_loss(c, grad, x, reduction), x, target)
    d = w - t
    outside = c.where(d <= -delta, g * (-norm * delta), c.where(d >= delta, g * (norm * delta), d * norm * g))
    return c.cast(outside, x.dtype)


@lowering("aten.nll_loss_backward.default", "aten.nll_loss2d_backward.default")
def nll_loss_backward(
    c: Ctx, grad: T, x: T, target: T, weight: T | None, reduction: int, ignore_index: int, total_weight: T
) -> T:
    """Minus the (weighted) gradient at each target's class, 0 elsewhere."""
    dim = class_axis(x)
    kept = c.unsqueeze(c("ne", target, ignore_index), dim)
    at = c("eq", c.iota(x.shape, dim, target.dtype), c.expand(c.unsqueeze(target, dim), x.shape))
    if reduction == _MEAN:
        g = c.expand(grad / total_weight, x.shape)
    else:
        g = c.expand(c.unsqueeze(grad, dim) if reduction == _NONE else grad, x.shape)
    if weight is not None:
        along = tuple(n if i == dim else 1 for i, n in enumerate(x.shape))
        g = g * c.expand(c.reshape(weight, along), x.shape)
    return c.where(c("and", at, c.expand(kept, x.shape)), -g, 0)
