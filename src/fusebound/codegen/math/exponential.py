"""exp, exp2, expm1, sigmoid and tanh.

All of them reduce x = n·ln 2 + r with |r| ≤ ln 2 / 2 (Cody and Waite) and scale a polynomial in r by 2^n.
exp and exp2 stay in float32; the others need the bits that a sum or a quotient loses, and go through float64,
where 2^n is always a normal number and one constant for ln 2 is enough (sigmoid not on AVX-512).
"""

from __future__ import annotations

import math

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.math import coefficients as C
from fusebound.codegen.math.basic import (
    FLOAT_MAGIC,
    approximate,
    at_least,
    at_most,
    bits_of,
    copysign,
    fabs,
    floats_of,
    has_512,
    in_double,
    poly,
    power_of_two,
    reciprocal_near_one,
    rounded_product,
)

LOG2E = 1 / math.log(2)
LN2 = math.log(2)
LN2_HIGH = 0.693145751953125  # 17 bits: n · LN2_HIGH is exact
LN2_LOW = 1.42860676533018e-06


def exp(fn: Fn, x: Reg) -> Reg:
    """e^x in float32; 0 and infinity outside the range, subnormal results rounded once."""
    x = at_least(fn, at_most(fn, x, 89.0), -104.0)
    bits, n = rounded_product(fn, x, LOG2E)
    back = fn.op("fneg", n)
    r = fn.fma(back, fn.like(LN2_LOW, x), fn.fma(back, fn.like(LN2_HIGH, x), x))
    return scaled(fn, poly(fn, r, (1.0, 1.0, *C.EXP)), bits, n)


def exp2(fn: Fn, x: Reg) -> Reg:
    """2^x in float32, exact at integers."""
    x = at_least(fn, at_most(fn, x, 129.0), -151.0)
    bits, n = rounded_product(fn, x, 1.0)
    return scaled(fn, poly(fn, fn.op("fsub", x, n), (1.0, *C.EXP2)), bits, n)


def scaled(fn: Fn, y: Reg, bits: Reg, n: Reg) -> Reg:
    """y · 2^n for float32 y in [1/2, 2] and n that may leave the exponent's range; one rounding."""
    if has_512(fn, y):
        return scalef(fn, y, n)
    whole = fn.op("sub", bits, bits_of(fn, fn.like(FLOAT_MAGIC, y)))
    half = fn.op("ashr", whole, fn.like(1, whole))
    for part in (half, fn.op("sub", whole, half)):  # each half is within range; only the second may round
        biased = fn.op("add", part, fn.like(127, part))
        y = fn.op("fmul", y, floats_of(fn, fn.op("shl", biased, fn.like(23, part))))
    return y


def scalef(fn: Fn, y: Reg, n: Reg) -> Reg:
    """y · 2^n by the AVX-512 instruction; one rounding."""
    every, mode = fn.const(-1, "i16"), fn.const(4, "i32")  # 4: the current rounding mode
    return fn.value_of("llvm.x86.avx512.mask.scalef.ps.512", y.type, y, n, y, every, mode)


def expm1(fn: Fn, x: Reg) -> Reg:
    """e^x - 1 in float32, to full relative accuracy near 0."""
    clamped = at_least(fn, at_most(fn, x, 89.0), -104.0)
    return copysign(fn, in_double(fn, clamped, lambda d: _expm1_double(fn, d, 1.0)), x)


def tanh(fn: Fn, x: Reg) -> Reg:
    """Hyperbolic tangent in float32: m / (m + 2) with m = e^(2x) - 1."""

    def quotient(d: Reg) -> Reg:
        m = _expm1_double(fn, d, 2.0)
        return fn.op("fmul", m, reciprocal_near_one(fn, fn.op("fadd", m, fn.like(2.0, m))))

    clamped = at_least(fn, at_most(fn, x, 9.1), -9.1)  # beyond, it rounds to ±1
    return copysign(fn, in_double(fn, clamped, quotient), x)


def _expm1_double(fn: Fn, d: Reg, scale: float) -> Reg:
    """e^(scale · d) - 1 for a power of two `scale`: 2^n (e^r - 1) + (2^n - 1), exact in its sum for n = 0."""
    bits, n = rounded_product(fn, d, scale * LOG2E)
    r = fn.fma(n, fn.like(-LN2 / scale, d), d)  # r / scale
    slope = poly(fn, r, [c * scale ** (k + 1) for k, c in enumerate(C.EXPM1)])
    power = power_of_two(fn, bits)
    rest = fn.op("fsub", power, fn.like(1.0, power))
    return fn.fma(power, fn.op("fmul", r, slope), rest)


def sigmoid(fn: Fn, x: Reg) -> Reg:
    """1 / (1 + e^-x) in float32."""
    if has_512(fn, x):
        return _sigmoid_512(fn, x)

    def compute(d: Reg) -> Reg:
        bits, n = rounded_product(fn, d, -LOG2E)
        r = fn.fma(n, fn.like(LN2, d), d)  # the negated remainder: -x = n ln 2 - r
        tail = [-c * (-1.0) ** k for k, c in enumerate(C.EXP_WIDE)]
        one = fn.like(1.0, d)
        power = fn.fma(poly(fn, r, (1.0, *tail)), power_of_two(fn, bits), one)
        return reciprocal_near_one(fn, power)

    return in_double(fn, at_least(fn, at_most(fn, x, 104.0), -104.0), compute)


def _sigmoid_512(fn: Fn, x: Reg) -> Reg:
    """2^-m / (1 + 2^-|n| + 2^l (e^r - 1)) for -x = n ln 2 + r, m = max(n, 0), l = min(n, 0).

    What is lost in the two sums goes into the one step of Newton's method that follows the 14-bit estimate of the
    reciprocal.
    """
    one, zero = fn.like(1.0, x), fn.like(0.0, x)
    x = at_least(fn, at_most(fn, x, 30.0), -104.0)
    _, n = rounded_product(fn, x, -LOG2E)
    back = fn.op("fneg", x)
    r = fn.fma(n, fn.like(-LN2_LOW, x), fn.fma(n, fn.like(-LN2_HIGH, x), back))
    rest = fn.fma(fn.op("fmul", r, r), poly(fn, r, C.EXP), r)
    down = fn.op("fneg", at_least(fn, n, zero))
    small = scalef(fn, one, fn.op("fneg", fabs(fn, n)))
    part = scalef(fn, rest, at_most(fn, n, zero))
    whole = fn.op("fadd", one, small)
    total = fn.op("fadd", whole, part)
    lost = fn.op("fsub", small, fn.op("fsub", whole, one))
    lost = fn.op("fadd", lost, fn.op("fsub", part, fn.op("fsub", total, whole)))
    guess = approximate(fn, "llvm.x86.avx512.rcp14.ps.512", total, 16)
    back = fn.op("fneg", guess)
    error = fn.fma(back, lost, fn.fma(back, total, one))
    return scalef(fn, fn.fma(guess, error, guess), down)
