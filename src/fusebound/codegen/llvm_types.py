"""LLVM types as text: taking vectors apart, exact literals, intrinsic name suffixes."""

from __future__ import annotations

import math
import struct

from fusebound.errors import BuildError

_SUFFIX = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}


def vec(element: str, count: int) -> str:
    """The type of `count` lanes of `element`; a vector even for one lane."""
    return f"<{count} x {element}>"


def is_vector(type: str) -> bool:
    """Whether `type` is a vector type."""
    return type.startswith("<")


def elem(type: str) -> str:
    """The element type of a vector; a scalar type itself."""
    return type[type.index(" x ") + 3 : -1] if is_vector(type) else type


def lanes(type: str) -> int:
    """The number of lanes of a vector; 1 for a scalar."""
    return int(type[1 : type.index(" x ")]) if is_vector(type) else 1


def with_elem(type: str, element: str) -> str:
    """`type` with another element type and as many lanes."""
    return vec(element, lanes(type)) if is_vector(type) else element


def mask_type(type: str) -> str:
    """The type of a comparison of two values of `type`."""
    return with_elem(type, "i1")


def mangle(type: str) -> str:
    """The suffix of an intrinsic overloaded on `type`: `v16f32`, `i32`, `p0`."""
    element = _SUFFIX.get(elem(type), elem(type))
    return f"v{lanes(type)}{element}" if is_vector(type) else element


def bits(element: str) -> int:
    """The width of a scalar type in bits."""
    widths = {"float": 32, "double": 64, "half": 16, "bfloat": 16, "ptr": 64}
    return widths[element] if element in widths else int(element[1:])


def literal(value: float | int | bool, type: str) -> str:
    """Operand text of a constant of `type`: a splat for a vector. Floats are rounded to nearest even once."""
    element = elem(type)
    text = _float_literal(float(value), element) if element[0] != "i" else _int_literal(value, element)
    return f"splat ({element} {text})" if is_vector(type) else text


def _float_literal(value: float, element: str) -> str:
    if element == "double":
        return f"0x{_double_bits(value):016X}"
    if element == "float":
        return f"0x{_double_bits(_to_float(value)):016X}"
    if element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    raise BuildError(f"no literals of type {element}: constants are of a compute type")


def _double_bits(value: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def _to_float(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _int_literal(value: float | int | bool, element: str) -> str:
    if element == "i1":
        return "true" if value else "false"
    width = int(element[1:])
    number = int(value) & ((1 << width) - 1)
    return str(number - (1 << width) if number >> (width - 1) else number)
