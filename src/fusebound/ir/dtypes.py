"""Element types: the names, widths and kinds that the IR, the gates and the emitters agree on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DType:
    """One element type; `kind` is float, int, uint, bool or complex, `mantissa` counts stored bits, `least` is the
    binary exponent of the smallest normal number."""

    name: str
    short: str
    itemsize: int
    kind: str
    mantissa: int = 0
    least: int = 0

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def ulp(self) -> float:
        """Unit in the last place of 1.0 (0 for exact types)."""
        return 2.0**-self.mantissa if self.is_float else 0.0

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number of full precision (0 for exact types)."""
        return 2.0**self.least if self.is_float else 0.0


_ALL = (
    DType("float64", "f64", 8, "float", 52, -1022),
    DType("float32", "f32", 4, "float", 23, -126),
    DType("float16", "f16", 2, "float", 10, -14),
    DType("bfloat16", "bf16", 2, "float", 7, -126),
    DType("float8_e4m3fn", "f8e4m3", 1, "float", 3, -6),
    DType("float8_e5m2", "f8e5m2", 1, "float", 2, -14),
    DType("float8_e4m3fnuz", "f8e4m3z", 1, "float", 3, -7),
    DType("float8_e5m2fnuz", "f8e5m2z", 1, "float", 2, -15),
    DType("float8_e8m0fnu", "f8e8m0", 1, "float", 0, -127),
    DType("int64", "i64", 8, "int"),
    DType("int32", "i32", 4, "int"),
    DType("int16", "i16", 2, "int"),
    DType("int8", "i8", 1, "int"),
    DType("uint8", "u8", 1, "uint"),
    DType("uint16", "u16", 2, "uint"),
    DType("uint32", "u32", 4, "uint"),
    DType("uint64", "u64", 8, "uint"),
    DType("bool", "b8", 1, "bool"),
    DType("complex32", "c32", 4, "complex"),
    DType("complex64", "c64", 8, "complex"),
    DType("complex128", "c128", 16, "complex"),
)

DTYPES: dict[str, DType] = {d.name: d for d in _ALL}
BY_SHORT: dict[str, DType] = {d.short: d for d in _ALL}

KERNEL_DTYPES = frozenset(
    ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
)
"""Types that generated kernels can load, compute and store; all others stay with the framework."""


def dtype(name: str) -> DType:
    """Look a type up by its long name; raises KeyError for an unknown one."""
    return DTYPES[name]
