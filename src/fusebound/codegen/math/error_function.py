"""erf in float32: an odd polynomial for small arguments, 1 - e^p(|x|) for the others."""

from __future__ import annotations

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.math import coefficients as C
from fusebound.codegen.math.basic import (
    at_most,
    copysign,
    fabs,
    poly,
    power_of_two,
    rounded_product,
)
from fusebound.codegen.math.exponential import LN2_HIGH, LN2_LOW, LOG2E

EDGE = 1.0
"""Where the two forms meet; the fits in bench/fit_vector_math.py are for this value."""


def erf(fn: Fn, x: Reg) -> Reg:
    """Error function; ±1 from |x| = 3.93 on, -0 at -0."""
    square = fn.op("fmul", x, x)
    small = fn.fma(x, poly(fn, square, C.ERF), x)
    size = at_most(fn, fabs(fn, x), 3.93)
    back = fn.op("fneg", size)
    slope = poly(
        fn, size, C.ERFC
    )  # log(erfc |x|) = |x| slope - |x|, too large a number to round before reduction
    bits, n = rounded_product(fn, fn.fma(size, slope, back), LOG2E)
    r = fn.fma(size, slope, fn.fma(n, fn.like(-LN2_HIGH, n), back))
    r = fn.fma(n, fn.like(-LN2_LOW, n), r)
    rest = poly(fn, r, (-1.0, -1.0, *[-c for c in C.EXP]))
    large = copysign(fn, fn.fma(rest, power_of_two(fn, bits), fn.like(1.0, x)), x)
    return fn.select(fn.fcmp("olt", size, fn.like(EDGE, size)), small, large)
