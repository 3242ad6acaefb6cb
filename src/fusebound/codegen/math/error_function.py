"""erf in float32: polynomials of 32 pieces (AVX-512) or 8 (AVX2), whose coefficients vectors look up; elsewhere an odd
polynomial for small arguments and 1 - e^p(|x|) for the others."""

from __future__ import annotations

from collections.abc import Sequence

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.llvm_types import lanes, literal, vec
from fusebound.codegen.math import coefficients as C
from fusebound.codegen.math.basic import (
    at_most,
    copysign,
    fabs,
    has_512,
    poly,
    power_of_two,
    rounded_product,
)
from fusebound.codegen.math.exponential import LN2_HIGH, LN2_LOW, LOG2E

EDGE = 1.0
"""Where the two forms meet; the fits in bench/fit_vector_math.py are for this value."""
LAST = 3.93
"""From here on erf rounds to 1."""
PIECES = {32: 1 / 8, 8: 17 / 32}
"""The width of a piece, by how many there are."""
ODD = 2
"""How many pieces are multiples of their argument; see bench/fit_vector_math.py."""


def erf(fn: Fn, x: Reg) -> Reg:
    """Error function; ±1 from |x| = 3.93 on, -0 at -0."""
    if has_512(fn, x):
        return _by_pieces(fn, x, C.ERF_32)
    has_eights = "avx2" in fn.isa and lanes(x.type) % 8 == 0
    return _by_pieces(fn, x, C.ERF_8) if has_eights else _in_two_forms(fn, x)


def _by_pieces(fn: Fn, x: Reg, table: Sequence[Sequence[float]]) -> Reg:
    width = PIECES[len(table)]
    size = at_most(fn, fabs(fn, x), LAST)
    piece, _ = rounded_product(fn, size, 1 / width)
    centre, value, *terms = (_looked_up(fn, column, piece) for column in zip(*table, strict=True))
    offset = fn.op("fsub", size, centre)
    slope = terms[-1]
    for c in terms[-2::-1]:
        slope = fn.fma(slope, offset, c)
    small = fn.fcmp("olt", size, fn.like((ODD - 0.5) * width, size))
    factor, start = fn.select(small, size, offset), fn.select(small, size, value)
    return copysign(fn, fn.fma(factor, slope, start), x)


def _looked_up(fn: Fn, values: Sequence[float], at: Reg) -> Reg:
    """Of 32 or 8 numbers those at the low bits of the lanes of `at`."""
    if len(values) == 32:
        low, high = (_constant(values[i : i + 16]) for i in (0, 16))
        return fn.value_of("llvm.x86.avx512.vpermi2var.ps.512", low.type, low, at, high)
    if lanes(at.type) > 8:
        return fn.join(*(_looked_up(fn, values, half) for half in fn.halves(at)))
    return fn.value_of("llvm.x86.avx2.permps", vec("float", 8), _constant(values), at)


def _constant(values: Sequence[float]) -> Reg:
    text = ", ".join(f"float {literal(v, 'float')}" for v in values)
    return Reg(f"<{text}>", vec("float", len(values)))


def _in_two_forms(fn: Fn, x: Reg) -> Reg:
    square = fn.op("fmul", x, x)
    small = fn.fma(x, poly(fn, square, C.ERF), x)
    size = at_most(fn, fabs(fn, x), LAST)
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
