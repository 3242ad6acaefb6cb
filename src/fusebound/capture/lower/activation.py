"""Activations, by the formulas of `ATen/native/cpu/Activation.cpp`, in float32 for half precision."""

from __future__ import annotations

import math
from collections.abc import Callable

from fusebound.capture.lower.context import Ctx, Number, T, axis, lowering


def _activation(formula: Callable[..., T]) -> Callable[..., T]:
    """A lowering that widens its operand, applies `formula(c, x, ...)` and narrows the result."""

    def lower(c: Ctx, x: T, *args: Number | str, **kwargs: Number | str) -> T:
        return c.cast(formula(c, c.wide(x), *args, **kwargs), x.dtype)

    return lower


@lowering("aten.relu.default")
def relu(c: Ctx, x: T) -> T:
    return c.clamp(x, 0, None)


@lowering("aten.relu6.default")
def relu6(c: Ctx, x: T) -> T:
    return c.clamp(x, 0, 6)


@lowering("aten.hardtanh.default")
def hardtanh(c: Ctx, x: T, lo: Number = -1, hi: Number = 1) -> T:
    return c.clamp(x, lo, hi)


@lowering("aten.threshold.default")
def threshold(c: Ctx, x: T, bound: Number, value: Number) -> T:
    return c.where(c.wide(x) <= bound, value, x)


@lowering("aten.gelu.default")
def gelu(c: Ctx, x: T, approximate: str = "none") -> T:
    w = c.wide(x)
    if approximate == "tanh":
        inner = (w + w * w * w * 0.044715) * math.sqrt(2 / math.pi)
        return c.cast(w * 0.5 * (c("tanh", inner) + 1.0), x.dtype)
    return c.cast(w * 0.5 * (c("erf", w * math.sqrt(0.5)) + 1.0), x.dtype)


@lowering("aten.silu.default")
@_activation
def silu(c: Ctx, x: T) -> T:
    return x / (c("exp", -x) + 1.0)


@lowering("aten.mish.default")
@_activation
def mish(c: Ctx, x: T) -> T:
    return x * c("tanh", c("log1p", c("exp", x)))


@lowering("aten.hardswish.default")
@_activation
def hardswish(c: Ctx, x: T) -> T:
    return x * c.clamp(x + 3.0, 0, 6) / 6.0


@lowering("aten.hardsigmoid.default")
@_activation
def hardsigmoid(c: Ctx, x: T) -> T:
    return c.clamp(x + 3.0, 0, 6) / 6.0


@lowering("aten.leaky_relu.default")
@_activation
def leaky_relu(c: Ctx, x: T, slope: Number = 0.01) -> T:
    return c.where(x > 0, x, x * slope)


@lowering("aten.elu.default")
@_activation
def elu(c: Ctx, x: T, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> T:
    below = c("expm1", x if input_scale == 1 else x * input_scale) * (alpha * scale)
    return c.where(x < 0, below, x if scale == 1 else x * scale)


@lowering("aten.celu.default")
@_activation
def celu(c: Ctx, x: T, alpha: Number = 1) -> T:
    return c.where(x < 0, c("expm1", x * (1.0 / alpha)) * alpha, x)


@lowering("aten.selu.default")
@_activation
def selu(c: Ctx, x: T) -> T:
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return c.where(x < 0, c("expm1", x) * (alpha * scale), x * scale)


@lowering("aten.softplus.default")
@_activation
def softplus(c: Ctx, x: T, beta: Number = 1, bound: Number = 20) -> T:
    z = x if beta == 1 else x * beta
    soft = c("log1p", c("exp", z))
    return c.where(z > bound, x, soft if beta == 1 else soft / beta)


@lowering("aten.log_sigmoid.default")
@_activation
def log_sigmoid(c: Ctx, x: T) -> T:
    return c.clamp(x, None, 0) - c("log1p", c("exp", -c("abs", x)))


@lowering("aten.softshrink.default")
@_activation
def softshrink(c: Ctx, x: T, lambd: Number = 0.5) -> T:
    inside = c.where(x < -lambd, x + lambd, c.where(c("isnan", x), x, 0))
    return c.where(x > lambd, x - lambd, inside)


@lowering("aten.hardshrink.default")
def hardshrink(c: Ctx, x: T, lambd: Number = 0.5) -> T:
    inside = c("and", x >= -lambd, x <= lambd)
    return c.where(inside, 0, x)


@lowering("aten.glu.default")
def glu(c: Ctx, x: T, dim: int = -1) -> T:
    dim = axis(dim, x.rank)
    half = x.shape[dim] // 2
    a, b = (c.wide(c.slice(x, dim, start, half)) for start in (0, half))
    return c.cast(a * c("sigmoid", b), x.dtype)


@lowering("aten.logit.default")
def logit(c: Ctx, x: T, eps: float | None = None) -> T:
    if eps is not None:
        x = c.clamp(x, eps, 1 - eps)
    return c("log", x / (1.0 - x))


@lowering("aten._prelu_kernel.default", "aten.prelu.default")
def prelu(c: Ctx, x: T, weight: T) -> T:
    """One slope, or one for each channel (axis 1)."""
    if x.rank == 0:
        weight = c.reshape(weight, ())
    elif weight.rank == 1 and x.rank > 1:
        weight = c.reshape(weight, (1, weight.shape[0], *(1,) * (x.rank - 2)))
    return c.where(x > 0, x, c.expand(weight, x.shape) * x)
