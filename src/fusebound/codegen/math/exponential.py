"""exp, exp2, expm1, sigmoid and tanh.

All of them reduce x = n·ln 2 + r with |r| ≤ ln 2 / 2 (Cody and Waite) and scale a polynomial in r by 2^n.
expm1 goes through float64, where 2^n is always a normal number and one constant for ln 2 is enough. The others stay in
float32; sigmoid and tanh put what their sums lose into a last correction.
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
    return scaled(fn, poly(fn, _reduced(fn, n, x), (1.0, 1.0, *C.EXP)), bits, n)


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
    return copysign(fn, in_double(fn, clamped, lambda d: _expm1_double(fn, d)), x)


def tanh(fn: Fn, x: Reg) -> Reg:
    """Hyperbolic tangent in float32: -m / (m + 2) with m = e^(-2|x|) - 1; beyond 9.1 it rounds to ±1.

    What is lost in m and in m + 2 goes into the one step that corrects the quotient.
    """
    size = at_most(fn, fabs(fn, x), 9.1)
    bits, n = rounded_product(fn, size, -2 * LOG2E)
    one, two = fn.like(1.0, x), fn.like(2.0, x)
    r = _reduced(fn, n, fn.op("fmul", size, fn.like(-2.0, x)))
    square, slope = fn.op("fmul", r, r), poly(fn, r, C.EXP)
    rise = fn.fma(square, slope, r)
    missed = fn.fma(square, slope, fn.op("fsub", r, rise))
    power = power_of_two(fn, bits)
    down = fn.op("fsub", power, one)
    m = fn.fma(rise, power, down)
    lost = fn.fma(rise, power, fn.op("fsub", down, m))
    lost = fn.op("fadd", fn.fma(missed, power, lost), fn.op("fsub", power, fn.op("fadd", down, one)))
    below = fn.op("fadd", m, two)
    lost_below = fn.op("fadd", fn.op("fsub", m, fn.op("fsub", below, two)), lost)
    inverse = _reciprocal(fn, below)
    guess = fn.op("fmul", m, inverse)
    back = fn.op("fneg", guess)
    error = fn.op("fadd", fn.fma(back, below, m), fn.fma(back, lost_below, lost))
    return copysign(fn, fn.fma(error, inverse, guess), x)


def _expm1_double(fn: Fn, d: Reg) -> Reg:
    """e^d - 1: 2^n (e^r - 1) + (2^n - 1), exact in its sum for n = 0."""
    bits, n = rounded_product(fn, d, LOG2E)
    r = fn.fma(n, fn.like(-LN2, d), d)
    power = power_of_two(fn, bits)
    rest = fn.op("fsub", power, fn.like(1.0, power))
    return fn.fma(power, fn.op("fmul", r, poly(fn, r, C.EXPM1)), rest)


def sigmoid(fn: Fn, x: Reg) -> Reg:
    """1 / (1 + e^-x) in float32. For -x = n ln 2 + r it is a / (1 + 2^-|n| + b (e^r - 1)), where one of a and b is
    2^-|n| and the other 1: b for positive x.

    What is lost in the sums goes into the one step of Newton's method that follows the reciprocal. Powers of two are
    2^24 times too large until the end, where results may be subnormal.
    """
    one, scale = fn.like(1.0, x), fn.like(2.0**-24, x)
    x = at_least(fn, at_most(fn, x, 30.0), -104.0)
    _, n = rounded_product(fn, x, -LOG2E)
    r = _reduced(fn, n, fn.op("fneg", x))
    rest = fn.fma(fn.op("fmul", r, r), poly(fn, r, C.EXP), r)
    bits = bits_of(fn, fn.op("fsub", fn.like(FLOAT_MAGIC + 24, n), fabs(fn, n)))
    large = power_of_two(fn, bits)
    small = fn.op("fmul", large, scale)
    positive = fn.fcmp("olt", n, fn.like(0.0, n))
    part = fn.op("fmul", rest, fn.select(positive, small, one))
    whole = fn.op("fadd", one, small)
    total = fn.op("fadd", whole, part)
    lost = fn.op("fsub", small, fn.op("fsub", whole, one))
    lost = fn.op("fadd", lost, fn.op("fsub", part, fn.op("fsub", total, whole)))
    guess = _reciprocal(fn, total)
    back = fn.op("fneg", guess)
    error = fn.fma(back, lost, fn.fma(back, total, one))
    above = fn.select(positive, fn.like(2.0**24, x), large)
    return fn.op("fmul", fn.op("fmul", fn.fma(guess, error, guess), above), scale)


def _reduced(fn: Fn, n: Reg, x: Reg) -> Reg:
    """x - n ln 2."""
    return fn.fma(n, fn.like(-LN2_LOW, x), fn.fma(n, fn.like(-LN2_HIGH, x), x))


def _reciprocal(fn: Fn, x: Reg) -> Reg:
    """1 / x to 14 bits or more, for a Newton step to follow."""
    if has_512(fn, x):
        return approximate(fn, "llvm.x86.avx512.rcp14.ps.512", x, 16)
    return fn.op("fdiv", fn.like(1.0, x), x)
