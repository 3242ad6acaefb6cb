"""sin and cos in float32: a three-part reduction by π/2 where it is exact, float64 beyond."""

from __future__ import annotations

import math

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.math import coefficients as C
from fusebound.codegen.math import sleef
from fusebound.codegen.math.basic import bits_of, fabs, floats_of, in_double, poly, rounded_product

LARGEST = 65536.0
"""The greatest |x| of the short reduction: n · PI_A stays exact in the fused multiply-add."""

# π/2 = PI_A + PI_B + PI_C to 70 bits: 20 bits, then float32, then float32.
PI_A = 1.57079601287841796875
PI_B = 3.139164786504813e-07
PI_C = 5.390302858158119e-15


def sin(fn: Fn, x: Reg) -> Reg:
    """Sine of radians; NaN at infinity."""
    return _large(fn, x, _short(fn, x, 0), "sin")


def cos(fn: Fn, x: Reg) -> Reg:
    """Cosine of radians; NaN at infinity."""
    return _large(fn, x, _short(fn, x, 1), "cos")


def _short(fn: Fn, x: Reg, quadrant: int) -> Reg:
    """sin(x + quadrant · π/2) for |x| ≤ LARGEST."""
    bits, n = rounded_product(fn, x, 2 / math.pi)
    if quadrant:
        bits = fn.op("add", bits, fn.like(quadrant, bits))
    back = fn.op("fneg", n)
    r = x
    for part in (PI_A, PI_B, PI_C):
        r = fn.fma(back, fn.like(part, x), r)
    square = fn.op("fmul", r, r)
    sine = fn.fma(fn.op("fmul", square, r), poly(fn, square, C.SIN), r)
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
