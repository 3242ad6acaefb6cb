"""What the vector functions share: polynomials, clamps, bit patterns, a detour through float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.llvm_types import bits, elem, lanes, with_elem

FLOAT_MAGIC = 1.5 * 2.0**23
"""Added to a float32 below 2²² it leaves the nearest integer in the low bits: the cheapest rounding."""

DOUBLE_MAGIC = 1.5 * 2.0**52
"""The same for float64."""


def poly(fn: Fn, x: Reg, coefficients: Sequence[float]) -> Reg:
    """Horner's rule with fused multiply-adds; the constant term comes first."""
    value = fn.like(coefficients[-1], x)
    for c in coefficients[-2::-1]:
        value = fn.fma(value, x, fn.like(c, x))
    return value


def at_most(fn: Fn, x: Reg, limit: Reg | float) -> Reg:
    """limit where it is below x, else x: a NaN and the sign of a zero stay. One instruction on x86."""
    bound = limit if isinstance(limit, Reg) else fn.like(limit, x)
    return fn.select(fn.fcmp("olt", bound, x), bound, x)


def at_least(fn: Fn, x: Reg, limit: Reg | float) -> Reg:
    """limit where it is above x, else x: a NaN and the sign of a zero stay. One instruction on x86."""
    bound = limit if isinstance(limit, Reg) else fn.like(limit, x)
    return fn.select(fn.fcmp("ogt", bound, x), bound, x)


def bits_of(fn: Fn, x: Reg) -> Reg:
    """The bit pattern of floats as integers of the same width."""
    return fn.cast("bitcast", x, with_elem(x.type, "i64" if elem(x.type) == "double" else "i32"))


def floats_of(fn: Fn, x: Reg) -> Reg:
    """The floats whose bit patterns the integers are."""
    return fn.cast("bitcast", x, with_elem(x.type, "double" if elem(x.type) == "i64" else "float"))


def copysign(fn: Fn, magnitude: Reg, sign: Reg) -> Reg:
    """|magnitude| with the sign of `sign`."""
    return fn.intrinsic("llvm.copysign", magnitude, sign)


def fabs(fn: Fn, x: Reg) -> Reg:
    """|x|."""
    return fn.intrinsic("llvm.fabs", x)


def in_double(fn: Fn, x: Reg, compute: Callable[[Reg], Reg]) -> Reg:
    """`compute` on float32 lanes widened to float64; one rounding back."""
    return fn.cast("fptrunc", compute(fn.cast("fpext", x, with_elem(x.type, "double"))), x.type)


def rounded_product(fn: Fn, x: Reg, factor: float) -> tuple[Reg, Reg]:
    """`(bits, n)`: n = x · factor rounded to an integer, and the bits of n + magic (their low part is n)."""
    magic = fn.like(DOUBLE_MAGIC if elem(x.type) == "double" else FLOAT_MAGIC, x)
    shifted = fn.fma(x, fn.like(factor, x), magic)
    return bits_of(fn, shifted), fn.op("fsub", shifted, magic)


def power_of_two(fn: Fn, bits: Reg) -> Reg:
    """2^n for the n in the low part of `bits`, in the range of normal numbers."""
    if elem(bits.type) == "i64":
        shift, one = 52, 1023 << 52
    else:
        shift, one = 23, 127 << 23
    moved = fn.op("shl", bits, fn.like(shift, bits))
    return floats_of(fn, fn.op("add", moved, fn.like(one, bits)))


def approximate(fn: Fn, intrinsic: str, x: Reg, width: int) -> Reg:
    """An AVX-512 estimate instruction on every `width` lanes of x."""
    if lanes(x.type) > width:
        low, high = fn.halves(x)
        return fn.join(approximate(fn, intrinsic, low, width), approximate(fn, intrinsic, high, width))
    every = fn.const((1 << width) - 1, f"i{max(width, 8)}")
    return fn.value_of(intrinsic, x.type, x, fn.const(0.0, x.type), every)


def has_512(fn: Fn, x: Reg) -> bool:
    """Whether the AVX-512 instructions below take x as it is."""
    return "avx512f" in fn.isa and lanes(x.type) * bits(elem(x.type)) == 512


def has_more_than_512(fn: Fn, x: Reg) -> bool:
    """Whether x is several registers, each of which the AVX-512 instructions take."""
    return "avx512f" in fn.isa and lanes(x.type) * bits(elem(x.type)) > 512


def fixed_up(fn: Fn, value: Reg, source: Reg, table: dict[str, str]) -> Reg:
    """`value`, replaced by the class of `source` (one AVX-512 instruction).

    The classes are nan, zero, -inf, +inf and -finite; the replacements are source, quiet (the source's NaN,
    made quiet), nan, -inf and +inf.
    """
    code = sum(_REPLACEMENTS[new] << (4 * at) for name, new in table.items() for at in _CLASSES[name])
    wide = elem(value.type) == "double"
    kinds = fn.const(code, with_elem(value.type, "i64" if wide else "i32"))
    name = f"llvm.x86.avx512.mask.fixupimm.{'pd' if wide else 'ps'}.512"
    every = fn.const(-1, f"i{lanes(value.type)}")
    return fn.value_of(name, value.type, value, source, kinds, fn.const(0, "i32"), every, fn.const(4, "i32"))


_CLASSES = {"nan": (0, 1), "zero": (2,), "-inf": (4,), "+inf": (5,), "-finite": (6,)}
_REPLACEMENTS = {"source": 1, "quiet": 2, "nan": 3, "-inf": 4, "+inf": 5}
