"""Vector mathematics: every pointwise primitive of the IR as LLVM instructions on vectors.

`apply` computes in the *compute type* (`compute_type`): float32 for the 16-bit floats, i1 masks for bool. No
fast-math flags; NaN, infinities, signed zeros and subnormals come out as in eager's vector kernels. The
float32 functions are within 1 ULP of the true value (`bench/vector_math.py` measures it over all inputs).
"""

from __future__ import annotations

from collections.abc import Sequence

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.llvm_types import elem
from fusebound.codegen.math import (
    arithmetic,
    error_function,
    exponential,
    hyperbolic,
    integers,
    logarithm,
    power,
    sleef,
    trigonometry,
)
from fusebound.codegen.math.basic import at_least, at_most, fabs, has_more_than_512, in_double
from fusebound.codegen.math.convert import (
    compute_type,
    convert,
    is_signed,
    load_convert,
    round_to,
    storage_type,
    store_convert,
)
from fusebound.codegen.math.philox import word as random_word
from fusebound.errors import BuildError
from fusebound.ir.dtypes import DTYPES

__all__ = [
    "apply",
    "compute_type",
    "convert",
    "load_convert",
    "random_word",
    "round_to",
    "storage_type",
    "store_convert",
]

_OWN = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "sigmoid": exponential.sigmoid,
    "tanh": exponential.tanh,
    "log": logarithm.log,
    "log2": logarithm.log2,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "erf": error_function.erf,
}
_REPAIRED = {
    "tan": hyperbolic.tan,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
}
_LIBRARY = frozenset(("tan", "asin", "acos", "atan", "atan2"))
_LIBRARY_DOUBLE = frozenset(("sinh", "cosh", "asinh", "acosh", "atanh", "erfc"))
"""Those whose float32 forms in the library lose accuracy or overflow early."""
_FLOAT_UNARY = {
    "neg": arithmetic.neg,
    "abs": fabs,
    "sign": arithmetic.sign,
    "sqrt": arithmetic.sqrt,
    "rsqrt": arithmetic.rsqrt,
    "reciprocal": arithmetic.reciprocal,
    "isnan": arithmetic.isnan,
    "isinf": arithmetic.isinf,
    "isfinite": arithmetic.isfinite,
    "probability": arithmetic.probability,
    "fits_float32": arithmetic.fits_float32,
}
_CHECKED = frozenset(("probability", "fits_float32"))
"""Those that flag lanes, as many as the loop's mask has."""
_FLOAT_BINARY = {
    "maximum": arithmetic.maximum,
    "minimum": arithmetic.minimum,
    "clamp_min": at_least,
    "clamp_max": at_most,
    "fmod": arithmetic.fmod,
    "rem": arithmetic.rem,
    "floor_div": arithmetic.floor_div,
    "trunc_div": arithmetic.trunc_div,
    "pow": power.pow,
}
_INT_SIGNED = {
    "maximum": integers.maximum,
    "minimum": integers.minimum,
    "clamp_min": integers.maximum,
    "clamp_max": integers.minimum,
    "abs": integers.absolute,
    "sign": integers.sign,
    "shr": integers.shr,
    "fmod": integers.fmod,
    "rem": integers.rem,
    "floor_div": integers.floor_div,
    "trunc_div": integers.trunc_div,
    "pow": integers.power,
}
_INT_PLAIN = {"neg": integers.neg, "not": integers.invert, "shl": integers.shl}
_BOOL = {
    "add": "or", "maximum": "or", "clamp_min": "or", "or": "or", "xor": "xor",
    "mul": "and", "minimum": "and", "clamp_max": "and", "and": "and",
}  # fmt: skip


def apply(fn: Fn, op: str, args: Sequence[Reg], dtype: str, lanes: int, *, in_dtypes: Sequence[str]) -> Reg:
    """The pointwise primitive `op` of the IR on vectors in their compute types.

    `in_dtypes` are the operands' element types and `dtype` the result's; `cast` converts to it. A division of
    integers by zero sets the flag word (`Fn.flag`). Raises BuildError where the operator has no meaning.
    """
    if op == "where":
        return fn.select(*args)
    if op == "cast":
        return convert(fn, args[0], in_dtypes[0], dtype, lanes)
    kind = DTYPES[in_dtypes[0]]
    if kind.is_float:
        result = _float(fn, op, args)
    elif kind.is_int:
        result = _integer(fn, op, args, is_signed(in_dtypes[0]))
    else:
        result = _boolean(fn, op, args)
    if result is None:
        raise BuildError(f"no code for the primitive {op} of {', '.join(in_dtypes)}", where=fn.name)
    return result


def _float(fn: Fn, op: str, args: Sequence[Reg]) -> Reg | None:
    if op in arithmetic.BINARY:
        return fn.op(arithmetic.BINARY[op], *args)
    if op in arithmetic.COMPARE:
        return fn.fcmp(arithmetic.COMPARE[op], *args)
    if op in arithmetic.ROUND:
        return fn.intrinsic(arithmetic.ROUND[op], *args)
    if op == "fma":
        return fn.fma(*args)
    if has_more_than_512(fn, args[0]) and op not in _CHECKED:
        lower, upper = zip(*(fn.halves(a) for a in args), strict=True)
        low, high = _float(fn, op, lower), _float(fn, op, upper)
        return None if low is None or high is None else fn.join(low, high)
    if op in _FLOAT_UNARY:
        return _FLOAT_UNARY[op](fn, args[0])
    if op in _FLOAT_BINARY:
        return _FLOAT_BINARY[op](fn, *args)
    return _transcendental(fn, op, args)


def _transcendental(fn: Fn, op: str, args: Sequence[Reg]) -> Reg | None:
    if op in _OWN:
        return _OWN[op](fn, args[0]) if elem(args[0].type) == "float" else _double(fn, op, args[0])
    if op in _REPAIRED and elem(args[0].type) == "double":
        return _REPAIRED[op](fn, args[0])
    if op in _LIBRARY_DOUBLE and elem(args[0].type) == "float":
        return in_double(fn, args[0], lambda d: sleef.call(fn, op, d))
    return sleef.call(fn, op, *args) if op in _LIBRARY or op in _LIBRARY_DOUBLE else None


def _double(fn: Fn, op: str, x: Reg) -> Reg:
    """A float64 function that torch's library has; sigmoid is eager's quotient."""
    if op != "sigmoid":
        return sleef.call(fn, op, x)
    one = fn.like(1.0, x)
    return fn.op("fdiv", one, fn.op("fadd", one, sleef.call(fn, "exp", fn.op("fneg", x))))


def _integer(fn: Fn, op: str, args: Sequence[Reg], signed: bool) -> Reg | None:
    if op in integers.BINARY:
        return fn.op(integers.BINARY[op], *args)
    if op in arithmetic.COMPARE:
        return integers.compare(fn, op, args[0], args[1], signed)
    if op in _INT_SIGNED:
        return _INT_SIGNED[op](fn, *args, signed)
    if op in _INT_PLAIN:
        return _INT_PLAIN[op](fn, *args)
    return _exact(fn, op, args)


def _boolean(fn: Fn, op: str, args: Sequence[Reg]) -> Reg | None:
    if op in _BOOL:
        return fn.op(_BOOL[op], *args)
    if op in arithmetic.COMPARE:
        return integers.compare(fn, op, args[0], args[1], False)
    if op == "not":
        return integers.invert(fn, args[0])
    return args[0] if op in ("abs", "sign") else _exact(fn, op, args)


def _exact(fn: Fn, op: str, args: Sequence[Reg]) -> Reg | None:
    """What is trivial on exact types: rounding changes nothing, and every value is finite."""
    if op in arithmetic.ROUND:
        return args[0]
    if op in ("isnan", "isinf", "isfinite"):
        same = fn.icmp("eq", args[0], args[0])
        return fn.like(op == "isfinite", same)
    return None
