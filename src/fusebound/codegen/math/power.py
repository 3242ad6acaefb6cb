"""pow in float32: |x|^y = 2^(y · log2|x|) in float64, with the special cases of IEEE 754."""

from __future__ import annotations

import math

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.llvm_types import elem, with_elem
from fusebound.codegen.math import arithmetic, sleef
from fusebound.codegen.math import coefficients as C
from fusebound.codegen.math.basic import (
    at_least,
    at_most,
    bits_of,
    fabs,
    floats_of,
    poly,
    power_of_two,
    rounded_product,
)
from fusebound.codegen.math.logarithm import SQRT_HALF_BITS_64


def pow(fn: Fn, x: Reg, y: Reg) -> Reg:
    """x ** y. The constant exponents that eager treats apart are products, roots and quotients here too; another one
    keeps the digits that float32 does not hold, as it does in eager's loop over single elements."""
    return _constant_exponent(fn, x, y) or (
        sleef.call(fn, "pow", x, y) if elem(x.type) == "double" else _general(fn, x, y)
    )


def _constant_exponent(fn: Fn, x: Reg, y: Reg) -> Reg | None:
    def square() -> Reg:
        return fn.op("fmul", x, x)

    forms = {
        0.5: lambda: arithmetic.sqrt(fn, x),
        1.0: lambda: x,
        2.0: square,
        3.0: lambda: fn.op("fmul", square(), x),
        -0.5: lambda: arithmetic.rsqrt(fn, x),
        -1.0: lambda: arithmetic.reciprocal(fn, x),
        -2.0: lambda: arithmetic.reciprocal(fn, square()),
    }
    for exponent, form in forms.items():
        if y.name == fn.like(exponent, y).name:
            return form()
    return None


def _general(fn: Fn, x: Reg, y: Reg) -> Reg:
    double = with_elem(x.type, "double")
    base = fn.cast("fpext", fabs(fn, x), double)
    wide = fn.cast("fpext", y, double) if y.exact is None else fn.const(y.exact, double)
    exponent = fn.op("fmul", wide, _log2(fn, base))
    exponent = at_least(fn, at_most(fn, exponent, 200.0), -200.0)  # float32 ends at 2^128 and 2^-150
    bits, n = rounded_product(fn, exponent, 1.0)
    fraction = fn.op("fsub", exponent, n)
    scale = power_of_two(fn, bits)
    value = fn.op("fmul", poly(fn, fraction, (1.0, *C.EXP2_WIDE)), scale)
    return _special(fn, x, y, fn.cast("fptrunc", value, x.type))


def _log2(fn: Fn, u: Reg) -> Reg:
    """log2 of positive normal float64 to about 2⁻⁴⁴: k + s · P(s²) with s = f / (2 + f)."""
    bits = bits_of(fn, u)
    moved = fn.op("add", bits, fn.like((1023 << 52) - SQRT_HALF_BITS_64, bits))
    biased = fn.op("lshr", moved, fn.like(52, bits))
    exponent = fn.op("shl", fn.op("sub", biased, fn.like(1023, bits)), fn.like(52, bits))
    mantissa = floats_of(fn, fn.op("sub", bits, exponent))
    one = fn.like(1.0, u)
    k = fn.op(
        "fsub", floats_of(fn, fn.op("or", biased, fn.like(0x433 << 52, bits))), fn.like(2.0**52 + 1023, u)
    )
    s = fn.op("fdiv", fn.op("fsub", mantissa, one), fn.op("fadd", mantissa, one))
    return fn.fma(s, poly(fn, fn.op("fmul", s, s), C.LOG2_WIDE), k)


def _special(fn: Fn, x: Reg, y: Reg, value: Reg) -> Reg:
    """The cases that the logarithm does not cover, and the sign of a negative base."""
    zero, one, inf, nan = (fn.like(v, x) for v in (0.0, 1.0, math.inf, math.nan))
    size, reach = fabs(fn, x), fabs(fn, y)
    whole = fn.fcmp("oeq", fn.intrinsic("llvm.trunc", y), y)
    half = fn.op("fmul", y, fn.like(0.5, y))
    odd = fn.op("and", whole, fn.fcmp("une", fn.intrinsic("llvm.trunc", half), half))
    # A base of 0 or infinity, then an infinite exponent: 0, 1 or infinity by the base's side of 1.
    flat = fn.op("or", fn.fcmp("oeq", size, zero), fn.fcmp("oeq", size, inf))
    rises = fn.op("xor", fn.fcmp("ogt", size, one), fn.fcmp("olt", y, zero))
    extreme = fn.select(rises, inf, zero)
    value = fn.select(flat, extreme, value)
    level = fn.select(fn.fcmp("oeq", size, one), one, extreme)
    value = fn.select(fn.fcmp("oeq", reach, inf), level, value)
    negative = fn.icmp("slt", bits_of(fn, x), fn.like(0, bits_of(fn, x)))
    value = fn.select(fn.op("and", negative, odd), fn.op("fneg", value), value)
    finite_negative = fn.op("and", fn.fcmp("olt", x, zero), fn.fcmp("olt", size, inf))
    undefined = fn.op("and", finite_negative, fn.op("xor", whole, fn.like(True, whole)))
    undefined = fn.op("and", undefined, fn.fcmp("olt", reach, inf))
    undefined = fn.op("or", undefined, fn.fcmp("uno", x, y))
    value = fn.select(undefined, nan, value)
    certain = fn.op("or", fn.fcmp("oeq", x, one), fn.fcmp("oeq", y, zero))
    return fn.select(certain, one, value)
