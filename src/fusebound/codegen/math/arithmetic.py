"""Floating-point primitives other than the transcendental ones; NaN and signed zeros as in eager."""

from __future__ import annotations

import math

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.llvm_types import elem, lanes, with_elem
from fusebound.codegen.math import sleef
from fusebound.codegen.math.basic import (
    approximate,
    bits_of,
    copysign,
    fabs,
    fixed_up,
    floats_of,
    has_512,
    in_double,
)

BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_LARGEST = float.fromhex("0x1.fffffep+127")
"""The largest float32."""
ROUND = {"floor": "llvm.floor", "ceil": "llvm.ceil", "round": "llvm.roundeven", "trunc": "llvm.trunc"}


def maximum(fn: Fn, a: Reg, b: Reg) -> Reg:
    """The greater, with +0 above -0; NaN if either is (`maximum` of IEEE 754-2019)."""
    return _extreme(fn, a, b, "ogt")


def minimum(fn: Fn, a: Reg, b: Reg) -> Reg:
    """The lesser, with -0 below +0; NaN if either is (`minimum` of IEEE 754-2019)."""
    return _extreme(fn, a, b, "olt")


def _extreme(fn: Fn, a: Reg, b: Reg, order: str) -> Reg:
    greater = order == "ogt"
    if has_512(fn, a) and "avx512dq" in fn.isa:
        kind = "pd" if elem(a.type) == "double" else "ps"
        every = fn.const(-1, f"i{lanes(a.type)}")
        picked = fn.value_of(
            f"llvm.x86.avx512.mask.range.{kind}.512", a.type, a, b,
            fn.const(5 if greater else 4, "i32"), a, every, fn.const(4, "i32"),
        )  # fmt: skip
    else:
        # Either order gives one of equal operands: of the bits of two zeros `and` makes +0, `or` -0.
        either = (fn.select(fn.fcmp(order, x, y), x, y) for x, y in ((a, b), (b, a)))
        picked = floats_of(fn, fn.op("and" if greater else "or", *(bits_of(fn, r) for r in either)))
    return fn.select(fn.fcmp("uno", a, b), fn.op("fadd", a, b), picked)


def probability(fn: Fn, x: Reg) -> Reg:
    """x, flagged where it does not lie in [0, 1]."""
    low, high = fn.fcmp("ult", x, fn.like(0.0, x)), fn.fcmp("ugt", x, fn.like(1.0, x))
    fn.flag(fn.op("or", low, high), "probability")
    return x


def fits_float32(fn: Fn, x: Reg) -> Reg:
    """x, flagged where it is finite and beyond the range of float32."""
    size = fabs(fn, x)
    beyond, finite = fn.fcmp("ogt", size, fn.like(_LARGEST, x)), fn.fcmp("olt", size, fn.like(math.inf, x))
    fn.flag(fn.op("and", beyond, finite), "overflow")
    return x


def sign(fn: Fn, x: Reg) -> Reg:
    """-1, 0 or 1; eager gives +0 for NaN and for -0."""
    one, zero = fn.like(1.0, x), fn.like(0.0, x)
    upper = fn.select(fn.fcmp("ogt", x, zero), one, zero)
    return fn.select(fn.fcmp("olt", x, zero), fn.like(-1.0, x), upper)


def neg(fn: Fn, x: Reg) -> Reg:
    """-x; flips the sign of zero."""
    return fn.op("fneg", x)


def reciprocal(fn: Fn, x: Reg) -> Reg:
    """1 / x, correctly rounded."""
    return fn.op("fdiv", fn.like(1.0, x), x)


def sqrt(fn: Fn, x: Reg) -> Reg:
    """Square root, correctly rounded."""
    return fn.intrinsic("llvm.sqrt", x)


def rsqrt(fn: Fn, x: Reg) -> Reg:
    """1 / √x: below 1 ULP in float32; in float64 eager's quotient."""

    def quotient(d: Reg) -> Reg:
        return reciprocal(fn, sqrt(fn, d))

    if elem(x.type) == "double":
        return quotient(x)
    if not has_512(fn, x):
        return in_double(fn, x, quotient)
    guess = approximate(fn, "llvm.x86.avx512.rsqrt14.ps.512", x, 16)
    # The residual of the 14-bit guess, one step of third order. A guess that is 0 or not finite is right.
    error = fn.fma(fn.op("fneg", fn.op("fmul", x, guess)), guess, fn.like(1.0, x))
    slope = fn.fma(error, fn.like(0.375, x), fn.like(0.5, x))
    better = fn.fma(fn.op("fmul", guess, error), slope, guess)
    right = {"nan": "quiet", "zero": "source", "-inf": "source", "+inf": "source"}
    return fixed_up(fn, better, guess, right)


def fmod(fn: Fn, a: Reg, b: Reg) -> Reg:
    """The exact remainder with the sign of a (C's fmod).

    The library's form gives NaN where the quotient overflows: float32 goes through float64, where it cannot,
    and float64 through libm in those cases.
    """
    if elem(a.type) == "float":
        double = with_elem(a.type, "double")
        wide = (fn.cast("fpext", r, double) for r in (a, b))
        return fn.cast("fptrunc", sleef.call(fn, "fmod", *wide), a.type)
    rest = sleef.call(fn, "fmod", a, b)
    size, divisor = fabs(fn, a), fabs(fn, b)
    large = fn.fcmp("ogt", size, fn.op("fmul", divisor, fn.like(2.0**300, b)))
    with fn.when(fn.any(large), keep=(rest,)) as arm:
        arm.update(fn.select(large, sleef.by_lanes(fn, "fmod", (a, b)), rest))
    return arm.results[0]


def rem(fn: Fn, a: Reg, b: Reg) -> Reg:
    """The remainder with the sign of b (Python's %, torch.remainder)."""
    rest = fmod(fn, a, b)
    return fn.select(_crosses(fn, rest, b), fn.op("fadd", rest, b), rest)


def _crosses(fn: Fn, rest: Reg, b: Reg) -> Reg:
    """Whether a remainder is nonzero and of the other sign than the divisor."""
    zero = fn.like(0.0, b)
    differs = fn.op("xor", fn.fcmp("olt", b, zero), fn.fcmp("olt", rest, zero))
    return fn.op("and", fn.fcmp("une", rest, zero), differs)


def floor_div(fn: Fn, a: Reg, b: Reg) -> Reg:
    """⌊a / b⌋ from the exact remainder (Python's //, torch.floor_divide); a / b where b is zero."""
    zero, one = fn.like(0.0, b), fn.like(1.0, b)
    ratio = fn.op("fdiv", a, b)
    rest = fmod(fn, a, b)
    whole = fn.op("fdiv", fn.op("fsub", a, rest), b)
    whole = fn.select(_crosses(fn, rest, b), fn.op("fsub", whole, one), whole)
    floor = fn.intrinsic("llvm.floor", whole)
    high = fn.fcmp("ogt", fn.op("fsub", whole, floor), fn.like(0.5, b))
    floor = fn.select(high, fn.op("fadd", floor, one), floor)
    result = fn.select(fn.fcmp("une", whole, zero), floor, copysign(fn, zero, ratio))
    return fn.select(fn.fcmp("oeq", b, zero), ratio, result)


def trunc_div(fn: Fn, a: Reg, b: Reg) -> Reg:
    """a / b rounded toward zero."""
    return fn.intrinsic("llvm.trunc", fn.op("fdiv", a, b))


def isnan(fn: Fn, x: Reg) -> Reg:
    """Whether x is NaN."""
    return fn.fcmp("uno", x, x)


def isinf(fn: Fn, x: Reg) -> Reg:
    """Whether x is an infinity."""
    return fn.fcmp("oeq", fabs(fn, x), fn.like(math.inf, x))


def isfinite(fn: Fn, x: Reg) -> Reg:
    """Whether x is neither infinite nor NaN."""
    return fn.fcmp("olt", fabs(fn, x), fn.like(math.inf, x))
