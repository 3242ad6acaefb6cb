"""Integer and bool primitives: wrapping, eager's shifts and powers, division that never raises a signal."""

from __future__ import annotations

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.llvm_types import bits, elem, mangle, with_elem

BINARY = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


def compare(fn: Fn, op: str, a: Reg, b: Reg, signed: bool) -> Reg:
    """eq, ne, lt, le, gt or ge; bools order as 0 < 1."""
    kind = _COMPARE[op]
    return fn.icmp(kind if kind in ("eq", "ne") else f"{'s' if signed else 'u'}{kind}", a, b)


def maximum(fn: Fn, a: Reg, b: Reg, signed: bool) -> Reg:
    """The greater."""
    return fn.intrinsic("llvm.smax" if signed else "llvm.umax", a, b)


def minimum(fn: Fn, a: Reg, b: Reg, signed: bool) -> Reg:
    """The lesser."""
    return fn.intrinsic("llvm.smin" if signed else "llvm.umin", a, b)


def neg(fn: Fn, x: Reg) -> Reg:
    """-x, wrapping."""
    return fn.op("sub", fn.like(0, x), x)


def absolute(fn: Fn, x: Reg, signed: bool) -> Reg:
    """|x|; the least value stays itself."""
    return fn.select(fn.icmp("slt", x, fn.like(0, x)), neg(fn, x), x) if signed else x


def sign(fn: Fn, x: Reg, signed: bool) -> Reg:
    """-1, 0 or 1."""
    positive = fn.cast("zext", fn.icmp("ne", x, fn.like(0, x)), x.type)
    return fn.select(fn.icmp("slt", x, fn.like(0, x)), fn.like(-1, x), positive) if signed else positive


def invert(fn: Fn, x: Reg) -> Reg:
    """Bitwise not; logical not of a bool."""
    return fn.op("xor", x, fn.like(-1, x))


def shl(fn: Fn, a: Reg, by: Reg) -> Reg:
    """a << by; 0 for a shift that is negative or at least the width."""
    valid, safe = _shift(fn, by)
    return fn.select(valid, fn.op("shl", a, safe), fn.like(0, a))


def shr(fn: Fn, a: Reg, by: Reg, signed: bool) -> Reg:
    """a >> by, arithmetic for signed types; a shift that is negative or too large leaves the sign, or 0."""
    valid, safe = _shift(fn, by)
    if not signed:
        return fn.select(valid, fn.op("lshr", a, safe), fn.like(0, a))
    most = fn.like(bits(elem(a.type)) - 1, by)
    return fn.op("ashr", a, fn.select(valid, by, most))


def _shift(fn: Fn, by: Reg) -> tuple[Reg, Reg]:
    """Whether a shift is within the width, and a shift that is."""
    valid = fn.icmp("ult", by, fn.like(bits(elem(by.type)), by))
    return valid, fn.select(valid, by, fn.like(0, by))


def trunc_div(fn: Fn, a: Reg, b: Reg, signed: bool) -> Reg:
    """a / b toward zero; a zero divisor is flagged and gives an unspecified value. Least value / -1 wraps."""
    return _quotient(fn, a, _divisor(fn, a, b, signed), signed)


def fmod(fn: Fn, a: Reg, b: Reg, signed: bool) -> Reg:
    """The remainder with the sign of a."""
    divisor = _divisor(fn, a, b, signed)
    return fn.op("sub", a, fn.op("mul", _quotient(fn, a, divisor, signed), divisor))


def rem(fn: Fn, a: Reg, b: Reg, signed: bool) -> Reg:
    """The remainder with the sign of b."""
    divisor = _divisor(fn, a, b, signed)
    return _floored(fn, a, divisor, signed)[1]


def floor_div(fn: Fn, a: Reg, b: Reg, signed: bool) -> Reg:
    """⌊a / b⌋."""
    return _floored(fn, a, _divisor(fn, a, b, signed), signed)[0]


def _floored(fn: Fn, a: Reg, divisor: Reg, signed: bool) -> tuple[Reg, Reg]:
    """Quotient and remainder of a division that rounds down."""
    quotient = _quotient(fn, a, divisor, signed)
    rest = fn.op("sub", a, fn.op("mul", quotient, divisor))
    if not signed:
        return quotient, rest
    zero = fn.like(0, a)
    differs = fn.icmp("slt", fn.op("xor", rest, divisor), zero)
    down = fn.op("and", fn.icmp("ne", rest, zero), differs)
    lower = fn.op("sub", quotient, fn.like(1, a))
    return fn.select(down, lower, quotient), fn.select(down, fn.op("add", rest, divisor), rest)


def _divisor(fn: Fn, a: Reg, b: Reg, signed: bool) -> Reg:
    """b, with 1 in the lanes whose division would trap; zero is flagged."""
    if b.name.startswith("splat") and not any(b.name == fn.like(n, b).name for n in (0, -1)):
        return b
    zero = fn.icmp("eq", b, fn.like(0, b))
    fn.flag(zero, "division")
    unsafe = zero
    if signed:
        least = fn.icmp("eq", a, fn.like(1 << (bits(elem(a.type)) - 1), a))
        wraps = fn.op("and", least, fn.icmp("eq", b, fn.like(-1, b)))
        unsafe = fn.op("or", zero, wraps)
    return fn.select(unsafe, fn.like(1, b), b)


def _quotient(fn: Fn, a: Reg, divisor: Reg, signed: bool) -> Reg:
    """The truncated quotient of a safe division.

    CPUs divide integers one at a time but floats in vectors. A float with enough bits cannot round a quotient
    onto the next integer, which is at least 1 / divisor away.
    """
    width = bits(elem(a.type))
    if width > 32 or divisor.name.startswith("splat"):
        return fn.op("sdiv" if signed else "udiv", a, divisor)
    real = with_elem(a.type, "double" if width == 32 else "float")
    x, y = (fn.cast("sitofp" if signed else "uitofp", r, real) for r in (a, divisor))
    whole = fn.cast("fptosi", fn.op("fdiv", x, y), with_elem(a.type, "i32"))
    return whole if width == 32 else fn.cast("trunc", whole, a.type)


def power(fn: Fn, base: Reg, exponent: Reg, signed: bool) -> Reg:
    """base ** exponent, wrapping, by repeated squaring; a negative exponent gives 0, or ±1 for base ±1."""
    zero, one = fn.like(0, base), fn.like(1, base)
    negative = fn.icmp("slt", exponent, zero) if signed else None
    size = exponent if negative is None else fn.select(negative, zero, exponent)
    with fn.loop(0, _bit_length(fn, size), 1, carry=(one, base, size)) as it:
        result, square, left = it.values
        odd = fn.icmp("ne", fn.op("and", left, one), zero)
        grown = fn.select(odd, fn.op("mul", result, square), result)
        it.update(grown, fn.op("mul", square, square), fn.op("lshr", left, one))
    result = it.results[0]
    if negative is None:
        return result
    parity = fn.icmp("eq", fn.op("and", exponent, one), zero)
    minus = fn.select(fn.icmp("eq", base, fn.like(-1, base)), fn.select(parity, one, base), zero)
    return fn.select(negative, fn.select(fn.icmp("eq", base, one), one, minus), result)


def _bit_length(fn: Fn, x: Reg) -> Reg:
    """The bits that the greatest lane of a vector needs (i64)."""
    most = fn.value_of(f"llvm.vector.reduce.or.{mangle(x.type)}", elem(x.type), x)
    wide = fn.cast("zext", most, "i64")
    return fn.op("sub", fn.const(64, "i64"), fn.value_of("llvm.ctlz.i64", "i64", wide, fn.const(False, "i1")))
