"""Operators of one operand, comparisons, logic, selection: one primitive each, plus promotion."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from fusebound.capture.encode import words
from fusebound.capture.lower.arithmetic import arithmetic, binary, common
from fusebound.capture.lower.context import Ctx, Number, T, Unlowered, lowering


def unary(op: str) -> Callable[[Ctx, T], T]:
    def lower(c: Ctx, x: T) -> T:
        return c(op, c.cast(x, c.out_dtype))

    return lower


for _op in words("""
neg abs sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sinh cosh asin acos atan
asinh acosh atanh erf erfc sigmoid sign
"""):
    lowering(f"aten.{_op}.default")(unary(_op))
lowering("aten.special_expit.default")(unary("sigmoid"))
lowering("aten.sgn.default")(unary("sign"))
lowering("aten.special_erf.default")(unary("erf"))


def rounding(op: str) -> Callable[[Ctx, T], T]:
    def lower(c: Ctx, x: T) -> T:
        return c(op, x) if x.dtype.is_floating_point else c.copy(x)

    return lower


for _op in ("floor", "ceil", "round", "trunc"):
    lowering(f"aten.{_op}.default")(rounding(_op))
lowering("aten.fix.default")(rounding("trunc"))


@lowering("aten.frac.default")
def frac(c: Ctx, x: T) -> T:
    w = c.wide(x)
    return c.cast(w - c("trunc", w), x.dtype)


@lowering("aten.deg2rad.default")
def deg2rad(c: Ctx, x: T) -> T:
    return arithmetic(c, "mul", x, math.pi / 180, c.out_dtype)


@lowering("aten.rad2deg.default")
def rad2deg(c: Ctx, x: T) -> T:
    return arithmetic(c, "mul", x, 180 / math.pi, c.out_dtype)


@lowering("aten.square.default")
def square(c: Ctx, x: T) -> T:
    if x.dtype == torch.bool:
        x = c.cast(x, c.out_dtype)
    return x * x


for _op in ("isnan", "isinf", "isfinite"):

    def _test(c: Ctx, x: T, op: str = _op) -> T:
        if x.dtype.is_floating_point:
            return c(op, x)
        return c.full(op == "isfinite", x.shape, torch.bool)

    lowering(f"aten.{_op}.default")(_test)


for _op in ("eq", "ne", "lt", "le", "gt", "ge"):
    lowering(f"aten.{_op}.Tensor", f"aten.{_op}.Scalar", numbers=True)(binary(_op))


def _logical(op: str) -> Callable[[Ctx, T, T], T]:
    def lower(c: Ctx, a: T, b: T) -> T:
        return c(op, truth(c, a), truth(c, b))

    return lower


def truth(c: Ctx, x: T) -> T:
    """Nonzero as bool (NaN is true)."""
    return x if x.dtype == torch.bool else c("ne", x, 0)


for _op in ("and", "or", "xor"):
    lowering(f"aten.logical_{_op}.default")(_logical(_op))


@lowering("aten.logical_not.default")
def logical_not(c: Ctx, x: T) -> T:
    return c("not", truth(c, x))


def _bitwise(op: str) -> Callable[[Ctx, T | Number, T | Number], T]:
    def lower(c: Ctx, a: T | Number, b: T | Number) -> T:
        dtype = common(a, b)
        return c(op, c.as_type(a, dtype), c.as_type(b, dtype))

    return lower


for _op in ("and", "or", "xor"):
    lowering(f"aten.bitwise_{_op}.Tensor", f"aten.bitwise_{_op}.Scalar", f"aten.__{_op}__.Tensor",
             f"aten.__{_op}__.Scalar")(_bitwise(_op))  # fmt: skip
lowering("aten.bitwise_left_shift.Tensor", "aten.bitwise_left_shift.Tensor_Scalar",
         "aten.__lshift__.Scalar", "aten.__lshift__.Tensor")(_bitwise("shl"))  # fmt: skip
lowering("aten.bitwise_right_shift.Tensor", "aten.bitwise_right_shift.Tensor_Scalar",
         "aten.__rshift__.Scalar", "aten.__rshift__.Tensor")(_bitwise("shr"))  # fmt: skip


@lowering("aten.bitwise_not.default")
def bitwise_not(c: Ctx, x: T) -> T:
    return c("not", x)


@lowering("aten.clamp.default")
def clamp(c: Ctx, x: T, lo: Number | None = None, hi: Number | None = None) -> T:
    dtype = c.out_dtype
    bounds = [None if b is None else _bound(b, dtype) for b in (lo, hi)]
    return c.clamp(c.cast(x, dtype), *bounds)


def _bound(b: Number, dtype: torch.dtype) -> Number:
    if not dtype.is_floating_point and (math.isinf(b) or math.isnan(b)):
        raise Unlowered("integers clamped at a bound that is no integer")
    return b


@lowering("aten.clamp.Tensor")
def clamp_tensor(c: Ctx, x: T, lo: T | None = None, hi: T | None = None) -> T:
    x = c.cast(x, c.out_dtype)
    if lo is not None:
        x = c("maximum", x, c.cast(lo, x.dtype))
    return x if hi is None else c("minimum", x, c.cast(hi, x.dtype))


@lowering("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(c: Ctx, x: T, lo: T | Number) -> T:
    if isinstance(lo, T):
        return arithmetic(c, "maximum", x, lo, c.out_dtype)
    return c.clamp(c.cast(x, c.out_dtype), lo, None)


@lowering("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(c: Ctx, x: T, hi: T | Number) -> T:
    if isinstance(hi, T):
        return arithmetic(c, "minimum", x, hi, c.out_dtype)
    return c.clamp(c.cast(x, c.out_dtype), None, hi)


@lowering("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def where(c: Ctx, condition: T, a: T | Number, b: T | Number) -> T:
    dtype = c.out_dtype
    a, b = (c.cast(x, dtype) if isinstance(x, T) else c.const(x, dtype) for x in (a, b))
    return c.where(truth(c, condition), a, b)


@lowering("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(c: Ctx, x: T, mask: T, value: T | Number) -> T:
    value = c.cast(value, x.dtype) if isinstance(value, T) else c.const(value, x.dtype)
    return c.expand(c.where(mask, value, x), c.out.shape)  # type: ignore[arg-type]


@lowering("aten.nan_to_num.default")
def nan_to_num(
    c: Ctx, x: T, nan: float | None = None, pos: float | None = None, neg: float | None = None
) -> T:
    if not x.dtype.is_floating_point:
        return c.copy(x)
    limits = torch.finfo(x.dtype)
    out = c.where(c("eq", x, math.inf), limits.max if pos is None else pos, x)
    out = c.where(c("eq", x, -math.inf), limits.min if neg is None else neg, out)
    return c.where(c("isnan", x), nan or 0.0, out)
