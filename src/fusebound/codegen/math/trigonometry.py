"""sin and cos in float32: a three-part reduction by π/2 where it is exact, float64 beyond."""

from __future__ import annotations

import math

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.math import coefficients as C
from fusebound.codegen.math import sleef
from fusebound.codegen.math.basic import bits_of, fabs, floats_of, in_double, poly, rounded_product

LARGEST = 65536.0
"""The greatest |x| of the short reduction. x - n · PI_A is exact there: a multiple of 2⁻²⁴ below 1."""

# π/2 to 72 bits, in three float32.
PI_A = 1.5707963705062866
PI_B = -4.371138828673793e-08
PI_C = -1.7151245100058819e-15


def sin(fn: Fn, x: Reg) -> Reg:
    """Sine of radians; NaN at infinity."""
    value = _large(fn, x, _short(fn, x, 0), "sin")
    return fn.select(fn.fcmp("oeq", x, fn.like(0.0, x)), x, value)


def cos(fn: Fn, x: Reg) -> Reg:
    """Cosine of radians; NaN at infinity."""
    return _large(fn, x, _short(fn, x, 1), "cos")


def _short(fn: Fn, x: Reg, quadrant: int) -> Reg:
    """sin(x + quadrant · π/2) for |x| ≤ LARGEST."""
    bits, n = rounded_product(fn, x, 2 / math.pi)
    if quadrant:
        bits = fn.op("add", bits, fn.like(quadrant, bits))
    back = fn.op("fneg", n)
    exact = fn.fma(back, fn.like(PI_A, x), x)
    second = fn.op("fmul", back, fn.like(PI_B, x))
    r = fn.op("fadd", exact, second)
    # What rounding r lost: it shows where r and sin r lie in different binades, and in the square.
    lost = fn.op("fadd", fn.op("fsub", exact, r), second)
    rest = fn.fma(back, fn.like(PI_B, x), fn.op("fneg", second))
    lost = fn.op("fadd", lost, fn.fma(back, fn.like(PI_C, x), rest))
    square = fn.fma(r, r, fn.op("fmul", fn.op("fadd", r, r), lost))
    sine = fn.op("fadd", fn.fma(fn.op("fmul", square, r), poly(fn, square, C.SIN), lost), r)
    cosine = poly(fn, square, (1.0, -0.5, *C.COS))
    odd = fn.icmp("ne", fn.op("and", bits, fn.like(1, bits)), fn.like(0, bits))
    sign = fn.op("shl", fn.op("and", bits, fn.like(2, bits)), fn.like(30, bits))
    return floats_of(fn, fn.op("xor", bits_of(fn, fn.select(odd, cosine, sine)), sign))


def _large(fn: Fn, x: Reg, value: Reg, name: str) -> Reg:
    """`value`, recomputed in the lanes that the short reduction does not serve; one branch for all lanes."""
    beyond = fn.fcmp("ogt", fabs(fn, x), fn.like(LARGEST, x))
    with fn.when(fn.any(beyond), keep=(value,)) as arm:
        exact = in_double(fn, x, lambda d: sleef.call(fn, name, d))
        arm.update(fn.select(beyond, exact, value))
    return arm.results[0]
