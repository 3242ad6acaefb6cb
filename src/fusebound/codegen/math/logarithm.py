"""log, log2, log10 and log1p: x = 2^k (1 + f) with 1 + f in [√½, √2), and a polynomial in f."""

from __future__ import annotations

import math

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.math import coefficients as C
from fusebound.codegen.math.basic import bits_of, copysign, fixed_up, floats_of, has_512, in_double, poly

LN2_HIGH = 0.693145751953125  # 17 bits: k · LN2_HIGH is exact
LN2_LOW = 1.42860676533018e-06
LOG2E_HIGH = 1.44269502162933349609375  # float32
LOG2E_LOW = 1.925963033500011e-08
SQRT_HALF_BITS = 0x3F3504F3
SQRT_HALF_BITS_64 = 0x3FE6A09E667F3BCD
SMALLEST_NORMAL = 2.0**-126


def log(fn: Fn, x: Reg) -> Reg:
    """Natural logarithm in float32; -inf at 0, NaN below."""
    k, f = _split(fn, x)
    square = fn.op("fmul", f, f)
    low = fn.fma(square, poly(fn, f, C.LOG), fn.op("fmul", k, fn.like(LN2_LOW, k)))
    return _special(fn, x, fn.fma(k, fn.like(LN2_HIGH, k), fn.op("fadd", f, low)))


def log2(fn: Fn, x: Reg) -> Reg:
    """Binary logarithm in float32, exact at powers of two."""
    k, f = _split(fn, x)
    square = fn.op("fmul", f, f)
    low = fn.fma(square, poly(fn, f, C.LOG2), fn.op("fmul", f, fn.like(LOG2E_LOW, f)))
    return _special(fn, x, fn.op("fadd", fn.fma(f, fn.like(LOG2E_HIGH, f), low), k))


def log10(fn: Fn, x: Reg) -> Reg:
    """Decimal logarithm in float32, computed in float64."""
    return _special(fn, x, in_double(fn, x, lambda d: _log_double(fn, d, None, 1 / math.log(10))))


def log1p(fn: Fn, x: Reg) -> Reg:
    """log(1 + x) in float32, to full relative accuracy near 0; computed in float64."""

    def compute(d: Reg) -> Reg:
        return _log_double(fn, fn.op("fadd", d, fn.like(1.0, d)), d, 1.0)

    value = copysign(fn, in_double(fn, x, compute), x)
    return _special(fn, x, value, -1.0)


def _split(fn: Fn, x: Reg) -> tuple[Reg, Reg]:
    """`(k, f)` of float32 lanes, both as floats; meaningless for zero, negative and non-finite lanes."""
    tiny = fn.fcmp("olt", x, fn.like(SMALLEST_NORMAL, x))
    bits = bits_of(fn, fn.select(tiny, fn.op("fmul", x, fn.like(2.0**25, x)), x))
    offset = fn.op("sub", bits, fn.like(SQRT_HALF_BITS, bits))
    k = fn.op("ashr", offset, fn.like(23, bits))
    mantissa = floats_of(fn, fn.op("sub", bits, fn.op("shl", k, fn.like(23, bits))))
    count = fn.cast("sitofp", k, x.type)
    count = fn.select(tiny, fn.op("fsub", count, fn.like(25.0, x)), count)
    return count, fn.op("fsub", mantissa, fn.like(1.0, x))


def _log_double(fn: Fn, u: Reg, above_one: Reg | None, factor: float) -> Reg:
    """factor · log(u) in float64 to about 2⁻²⁸; `above_one` is u - 1 where it is known exactly.

    u is positive and normal: every positive float32 is, widened.
    """
    bits = bits_of(fn, u)
    moved = fn.op("add", bits, fn.like((1023 << 52) - SQRT_HALF_BITS_64, bits))
    biased = fn.op("lshr", moved, fn.like(52, bits))
    inverse = floats_of(fn, fn.op("shl", fn.op("sub", fn.like(2046, bits), biased), fn.like(52, bits)))
    k = fn.op(
        "fsub", floats_of(fn, fn.op("or", biased, fn.like(0x433 << 52, bits))), fn.like(2.0**52 + 1023, u)
    )
    one = fn.like(1.0, u)
    if above_one is None:
        f = fn.fma(u, inverse, fn.like(-1.0, u))
    else:
        f = fn.fma(above_one, inverse, fn.op("fsub", inverse, one))
    slope = poly(fn, f, [c * factor for c in C.LOG1P])
    return fn.fma(k, fn.like(math.log(2) * factor, u), fn.op("fmul", f, slope))


def _special(fn: Fn, x: Reg, value: Reg, zero: float = 0.0) -> Reg:
    """`value`, with -inf where x = `zero`, NaN below it, and x itself where it is +inf or NaN."""
    if zero == 0.0 and has_512(fn, x):
        table = {"nan": "quiet", "zero": "-inf", "-inf": "nan", "+inf": "source", "-finite": "nan"}
        return fixed_up(fn, value, x, table)
    bound = fn.like(zero, x)
    value = fn.select(fn.fcmp("olt", x, fn.like(math.inf, x)), value, x)
    pole = fn.select(fn.fcmp("oeq", x, bound), fn.like(-math.inf, x), fn.like(math.nan, x))
    return fn.select(fn.fcmp("ogt", x, bound), value, pole)
