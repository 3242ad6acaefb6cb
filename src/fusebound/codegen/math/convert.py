"""Element types in registers and in memory, and conversions between them with eager's results.

In registers float16 and bfloat16 are float32, bool is i1 and integers are themselves; in memory bfloat16 is
i16 and bool is i8. Out-of-range floats become integers as torch does it on x86: int32 and int64 take their
least value; int8 and int16 take the low bits of the int32, uint8 those of the int64.
"""

from __future__ import annotations

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.llvm_types import bits, elem, vec
from fusebound.codegen.math.basic import bits_of, floats_of
from fusebound.ir.dtypes import DTYPES

_COMPUTE = {"float64": "double", "float32": "float", "float16": "float", "bfloat16": "float", "bool": "i1"}
_STORAGE = {"float64": "double", "float32": "float", "float16": "half", "bfloat16": "i16"}


def compute_type(dtype: str) -> str:
    """The LLVM element type in which values of `dtype` are computed."""
    return _COMPUTE.get(dtype) or f"i{8 * DTYPES[dtype].itemsize}"


def storage_type(dtype: str) -> str:
    """The LLVM element type of `dtype` in memory."""
    return _STORAGE.get(dtype) or f"i{8 * DTYPES[dtype].itemsize}"


def is_signed(dtype: str) -> bool:
    """Whether an integer type has a sign."""
    return DTYPES[dtype].kind == "int"


def load_convert(fn: Fn, raw: Reg, dtype: str, lanes: int) -> Reg:
    """From the storage form to the compute form."""
    if dtype == "bfloat16":
        wide = fn.cast("zext", raw, vec("i32", lanes))
        return floats_of(fn, fn.op("shl", wide, fn.like(16, wide)))
    if dtype == "float16":
        return fn.cast("fpext", raw, vec("float", lanes))
    if dtype == "bool":
        return fn.icmp("ne", raw, fn.like(0, raw))
    return raw


def store_convert(fn: Fn, value: Reg, dtype: str, lanes: int) -> Reg:
    """From the compute form to the storage form; rounds float16 and bfloat16 to nearest even."""
    if dtype == "bfloat16":
        high = _bfloat_bits(fn, value)
        return fn.cast("trunc", fn.op("lshr", high, fn.like(16, high)), vec("i16", lanes))
    if dtype == "float16":
        return fn.cast("fptrunc", value, vec("half", lanes))
    if dtype == "bool":
        return fn.cast("zext", value, vec("i8", lanes))
    return value


def round_to(fn: Fn, value: Reg, dtype: str, lanes: int) -> Reg:
    """The compute form of `value` as a store and a load would leave it: a narrow type's rounding point."""
    if dtype == "bfloat16":
        high = _bfloat_bits(fn, value)
        return floats_of(fn, fn.op("and", high, fn.like(0xFFFF0000, high)))
    if dtype == "float16":
        return fn.cast("fpext", fn.cast("fptrunc", value, vec("half", lanes)), value.type)
    return value


def _bfloat_bits(fn: Fn, value: Reg) -> Reg:
    """float32 bits whose upper half is the nearest bfloat16 (ties to even); NaN stays a quiet NaN.

    Integer arithmetic, since the CPU's own instruction flushes subnormals.
    """
    pattern = bits_of(fn, value)
    odd = fn.op("and", fn.op("lshr", pattern, fn.like(16, pattern)), fn.like(1, pattern))
    nearest = fn.op("add", fn.op("add", pattern, fn.like(0x7FFF, pattern)), odd)
    return fn.select(fn.fcmp("uno", value, value), fn.like(0x7FC00000, pattern), nearest)


def convert(fn: Fn, value: Reg, source: str, target: str, lanes: int) -> Reg:
    """`value` of type `source` as type `target`, both in their compute form, rounded to `target`."""
    if source == target:
        return value
    if target == "bool":
        return _to_bool(fn, value, source)
    if source == "bool":
        return _from_bool(fn, value, target, lanes)
    kind = vec(compute_type(target), lanes)
    if DTYPES[source].is_float:
        return _from_float(fn, value, target, kind, lanes)
    if DTYPES[target].is_float:
        number = fn.cast("sitofp" if is_signed(source) else "uitofp", value, kind)
        return round_to(fn, number, target, lanes)
    return _resized(fn, value, kind, is_signed(source))


def _to_bool(fn: Fn, value: Reg, source: str) -> Reg:
    """Not zero; NaN is true."""
    if DTYPES[source].is_float:
        return fn.fcmp("une", value, fn.like(0.0, value))
    return fn.icmp("ne", value, fn.like(0, value))


def _from_bool(fn: Fn, value: Reg, target: str, lanes: int) -> Reg:
    kind = vec(compute_type(target), lanes)
    if DTYPES[target].is_float:
        return fn.select(value, fn.const(1.0, kind), fn.const(0.0, kind))
    return fn.cast("zext", value, kind)


def _from_float(fn: Fn, value: Reg, target: str, kind: str, lanes: int) -> Reg:
    if not DTYPES[target].is_float:
        return _to_int(fn, value, kind, lanes, 64 if target in ("int64", "uint8") else 32)
    if elem(value.type) != elem(kind):
        value = fn.cast("fpext" if elem(kind) == "double" else "fptrunc", value, kind)
    return round_to(
        fn, value, target, lanes
    )  # float64 reaches the narrow types by way of float32, as in eager


def _to_int(fn: Fn, value: Reg, kind: str, lanes: int, width: int) -> Reg:
    """Truncation toward zero; what does not fit `width` bits becomes their least value; then narrowed."""
    if elem(value.type) == "float" and elem(kind) != "i64":
        width = 32  # float32 beyond 2³¹ is a multiple of 256: the narrow types cannot tell the difference
    whole = vec(f"i{width}", lanes)
    low, high = fn.like(-(2.0 ** (width - 1)), value), fn.like(2.0 ** (width - 1), value)
    above = "ogt" if width == 32 and elem(value.type) == "double" else "oge"
    if above == "ogt":  # -2³¹ - 0.5 still truncates into range
        low = fn.like(-(2.0**31) - 1, value)
    fits = fn.op("and", fn.fcmp(above, value, low), fn.fcmp("olt", value, high))
    number = fn.select(fits, fn.cast("fptosi", value, whole), fn.const(-(1 << (width - 1)), whole))
    return _resized(fn, number, kind, True)


def _resized(fn: Fn, value: Reg, kind: str, signed: bool) -> Reg:
    have, want = bits(elem(value.type)), bits(elem(kind))
    if have == want:
        return value
    return fn.cast("trunc" if want < have else "sext" if signed else "zext", value, kind)
