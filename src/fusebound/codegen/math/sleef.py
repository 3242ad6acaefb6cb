"""Calls of the vector functions that torch links (SLEEF in libtorch_cpu), or of libm one lane at a time.

Used for float64 and for the rarer float32 functions; eager calls the same code. `u10` stands for an error of
at most 1.0 ULP (`erfc`: 1.5 in float64).
"""

from __future__ import annotations

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.llvm_types import elem, lanes, vec

_BOUNDS = {"erfc": "_u15", "fmod": ""}


def call(fn: Fn, name: str, *args: Reg) -> Reg:
    """The function `name` ("sinh", "pow", "fmod", …) of one or two vectors of float or double."""
    element, count = elem(args[0].type), lanes(args[0].type)
    width = _width(fn, element)
    if width == 0:
        return by_lanes(fn, name, args)
    if count > width:
        low, high = zip(*(fn.halves(a) for a in args), strict=True)
        return fn.join(call(fn, name, *low), call(fn, name, *high))
    symbol = f"Sleef_{name}{'d' if element == 'double' else 'f'}{width}{_BOUNDS.get(name, '_u10')}"
    wide = [_padded(fn, a, width) for a in args]
    result = fn.value_of(symbol, vec(element, width), *wide)
    return result if count == width else fn.shuffle(result, result, list(range(count)))


def _width(fn: Fn, element: str) -> int:
    """The lanes of the symbols to call: those whose vectors the ABI passes in one register."""
    bits = 512 if "avx512f" in fn.isa else 256 if "avx2" in fn.isa and "fma" in fn.isa else 0
    return bits // (64 if element == "double" else 32)


def _padded(fn: Fn, x: Reg, width: int) -> Reg:
    """`x` in a vector of `width` lanes; the further ones repeat its first."""
    count = lanes(x.type)
    if count == width:
        return x
    return fn.shuffle(x, x, [i if i < count else 0 for i in range(width)])


def by_lanes(fn: Fn, name: str, args: tuple[Reg, ...]) -> Reg:
    """libm on each lane in turn, for machines without the vector functions."""
    element = elem(args[0].type)
    symbol = name if element == "double" else f"{name}f"
    result = fn.undef(args[0].type)
    for lane in range(lanes(args[0].type)):
        value = fn.value_of(symbol, element, *(fn.extract(a, lane) for a in args))
        result = fn.insert(result, value, lane)
    return result
