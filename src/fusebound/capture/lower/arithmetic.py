"""Promotion, and the operators that do arithmetic on two or three operands."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fusebound.capture.lower.context import Ctx, Number, T, Unlowered, lowering, wide_type

_HALF = (torch.bfloat16, torch.float16)


def common(a: T | Number, b: T | Number) -> torch.dtype:
    """The type that the framework promotes two operands to (0-d tensors and numbers count less)."""
    return torch.result_type(_probe(a), _probe(b))


def _probe(x: T | Number) -> torch.Tensor | Number:
    if isinstance(x, T) and x.is_number:
        return 1.0
    return torch.empty((1,) * min(x.rank, 1), dtype=x.dtype, device="meta") if isinstance(x, T) else x


def arithmetic(c: Ctx, op: str, a: T | Number, b: T | Number, dtype: torch.dtype | None = None) -> T:
    """Promote both operands and apply `op` in the common type."""
    dtype = dtype or common(a, b)
    return c(op, c.as_type(a, dtype), c.as_type(b, dtype))


def with_wide_number(c: Ctx, op: str, a: T | Number, b: T | Number, dtype: torch.dtype) -> T:
    """For multiplication and division, eager keeps a number (or 0-d tensor) on the right in float32 beside a
    half-precision tensor. Addition, remainders and powers round it to the tensor's type first
    (`arithmetic`)."""
    scalar = not isinstance(b, T) or (b.rank == 0 and b.dtype != dtype)
    if dtype not in _HALF or not scalar or not isinstance(a, T):
        return arithmetic(c, op, a, b, dtype)
    right = c.cast(b, torch.float32) if isinstance(b, T) else b
    return c.cast(c(op, c.cast(c.cast(a, dtype), torch.float32), right), dtype)


def scaled(c: Ctx, op: str, a: T | Number, b: T | Number, alpha: T | Number) -> T:
    """`a ± alpha·b`, rounded once."""
    if isinstance(a, T) and a.dtype == torch.bool and isinstance(b, T) and b.dtype == torch.bool:
        if op == "sub" or alpha != 1:
            raise Unlowered("booleans with a factor")
        return c("or", a, b)
    if alpha == 1:
        return arithmetic(c, op, a, b)
    dtype = common(a, b)
    left, right, factor = (
        c.wide(c.as_type(a, dtype)),
        c.wide(c.as_type(b, dtype)),
        c.wide(c.checked(alpha, dtype)),
    )
    if not dtype.is_floating_point:
        return c.cast(c(op, left, right * factor), dtype)
    return c.cast(c("fma", right, factor if op == "add" else -factor, left), dtype)


@lowering("aten.add.Tensor", "aten.add.Scalar", numbers=True)
def add(c: Ctx, a: T, b: T | Number, alpha: T | Number = 1) -> T:
    return scaled(c, "add", a, b, alpha)


@lowering("aten.sub.Tensor", "aten.sub.Scalar", numbers=True)
def sub(c: Ctx, a: T, b: T | Number, alpha: T | Number = 1) -> T:
    return scaled(c, "sub", a, b, alpha)


@lowering("aten.rsub.Scalar", "aten.rsub.Tensor", numbers=True)
def rsub(c: Ctx, a: T, b: T | Number, alpha: T | Number = 1) -> T:
    return scaled(c, "sub", b, a, alpha)


@lowering("aten.mul.Tensor", "aten.mul.Scalar", numbers=True)
def mul(c: Ctx, a: T, b: T | Number) -> T:
    if common(a, b) == torch.bool:
        return c("and", a, b)
    return with_wide_number(c, "mul", a, b, common(a, b))


def _float_type(a: T | Number, b: T | Number) -> torch.dtype:
    dtype = common(a, b)
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


@lowering("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", numbers=True)
def div(c: Ctx, a: T, b: T | Number) -> T:
    return with_wide_number(c, "div", a, b, _float_type(a, b))


@lowering("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(c: Ctx, a: T, b: T | Number, rounding_mode: str | None = None) -> T:
    if rounding_mode is None:
        return div(c, a, b)
    op = {"floor": "floor_div", "trunc": "trunc_div"}[rounding_mode]
    return with_wide_number(c, op, a, b, common(a, b))


@lowering("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(c: Ctx, a: T, b: T | Number) -> T:
    return with_wide_number(c, "floor_div", a, b, common(a, b))


def binary(op: str) -> Callable[[Ctx, T | Number, T | Number], T]:
    def lower(c: Ctx, a: T | Number, b: T | Number) -> T:
        return arithmetic(c, op, a, b)

    return lower


for _op, _targets in {
    "rem": ("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor"),
    "fmod": ("aten.fmod.Tensor", "aten.fmod.Scalar"),
    "maximum": ("aten.maximum.default", "aten.max.other"),
    "minimum": ("aten.minimum.default", "aten.min.other"),
}.items():
    lowering(*_targets)(binary(_op))


@lowering("aten.atan2.default")
def atan2(c: Ctx, a: T, b: T) -> T:
    return arithmetic(c, "atan2", a, b, c.out_dtype)


def _skipping(op: str) -> Callable[[Ctx, T, T], T]:
    """The other operand beside a NaN. Of two zeros eager takes the first, in bfloat16 the second."""

    def lower(c: Ctx, a: T, b: T) -> T:
        a, b = c.cast(a, c.out_dtype), c.cast(b, c.out_dtype)
        if not a.dtype.is_floating_point:
            return c(op, a, b)
        kept, other = (b, a) if a.dtype == torch.bfloat16 else (a, b)
        return c.where(c("isnan", kept), other, c(op, kept, other))

    return lower


lowering("aten.fmax.default")(_skipping("clamp_min"))
lowering("aten.fmin.default")(_skipping("clamp_max"))


@lowering("aten.pow.Tensor_Scalar")
def pow_scalar(c: Ctx, x: T, exponent: Number) -> T:
    """Eager's special exponents (0, 0.5, 1, 2, 3, -0.5, -1, -2) by the operations that it uses for them."""
    dtype = common(x, exponent)
    x = c.cast(x, dtype)
    if exponent == 0:
        return c.full(1, x.shape, dtype)
    if exponent == 1:
        return c.copy(x)
    if not dtype.is_floating_point and exponent not in (2, 3):
        raise Unlowered("an integer power other than 2 and 3")
    if dtype == torch.float16:
        # Eager has no shortcuts here: roots keep pow's signs and infinities, small powers are float32 inside.
        if exponent in (0.5, -0.5):
            return c("pow", x, exponent)
        return (
            c.cast(_power(c, c.wide(x), exponent), dtype) if exponent in (3, -2) else _power(c, x, exponent)
        )
    return _power(c, x, exponent)


def _power(c: Ctx, x: T, exponent: Number) -> T:
    match exponent:
        case 2:
            return x * x
        case 3:
            return x * x * x
        case 0.5:
            return c("sqrt", x)
        case -0.5:
            return c("rsqrt", x)
        case -1:
            return c("reciprocal", x)
        case -2:
            return c("reciprocal", x * x)
        case _:
            return c("pow", x, c.unrounded(exponent, x.dtype) if x.dtype == torch.float32 else exponent)


@lowering("aten.pow.Tensor_Tensor")
def pow_tensor(c: Ctx, a: T, b: T) -> T:
    return _general_power(c, a, b)


@lowering("aten.pow.Scalar")
def pow_of_scalar(c: Ctx, a: Number, b: T) -> T:
    if a == 1:
        return c.full(1, b.shape, c.out_dtype)
    return _general_power(c, a, b)


def _general_power(c: Ctx, a: T | Number, b: T | Number) -> T:
    if not c.out_dtype.is_floating_point:
        raise Unlowered("an integer power with a tensor exponent")
    return arithmetic(c, "pow", a, b, c.out_dtype)


@lowering("aten.lerp.Scalar", "aten.lerp.Tensor", numbers=True)
def lerp(c: Ctx, a: T, b: T, weight: T | Number) -> T:
    """Two formulas, chosen by |weight| < 0.5, as the framework's (`ATen/native/Lerp.h`)."""
    a, b = c.wide(a), c.wide(b)
    if isinstance(weight, T):
        w = c.checked(weight, c.out_dtype) if weight.is_number else c.wide(weight)
        near = c("abs", w) < 0.5
        return c.cast(c("fma", c.where(near, w, w - 1.0), b - a, c.where(near, a, b)), c.out_dtype)
    if abs(weight) < 0.5:
        return c.cast(c("fma", b - a, weight, a), c.out_dtype)
    return c.cast(c("fma", b - a, float(torch.tensor(weight, dtype=a.dtype) - 1), b), c.out_dtype)


def _times(c: Ctx, a: T, value: T | Number) -> T:
    """A wide operand times a number of the call."""
    if isinstance(value, T):
        return a * c.wide(c.checked(value, c.out_dtype))
    return a if value == 1 else a * value


@lowering("aten.addcmul.default", numbers=True)
def addcmul(c: Ctx, x: T, a: T, b: T, value: T | Number = 1) -> T:
    x, a, b = (c.cast(c.cast(i, c.out_dtype), wide_type(c.out_dtype)) for i in (x, a, b))
    a = _times(c, a, value)
    return c.cast(c("fma", a, b, x) if c.out_dtype.is_floating_point else x + a * b, c.out_dtype)


@lowering("aten.addcdiv.default", numbers=True)
def addcdiv(c: Ctx, x: T, a: T, b: T, value: T | Number = 1) -> T:
    x, a, b = (c.cast(c.cast(i, c.out_dtype), wide_type(c.out_dtype)) for i in (x, a, b))
    return c.cast(x + _times(c, a, value) / b, c.out_dtype)


@lowering("aten.logaddexp.default")
def logaddexp(c: Ctx, a: T, b: T) -> T:
    """The greater plus log1p of the rest; equal infinities are themselves."""
    a, b = c.wide(c.cast(a, c.out_dtype)), c.wide(c.cast(b, c.out_dtype))
    soft = c("maximum", a, b) + c("log1p", c("exp", -c("abs", a - b)))
    same = c("and", c("isinf", a), c("eq", a, b))
    return c.cast(c.where(same, a, soft), c.out_dtype)
