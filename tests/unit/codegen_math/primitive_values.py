"""Edge values of every element type, and a primitive run over tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fusebound.codegen.math.probe import MapKernel

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
_FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 2.0, -2.0, 7.25, -7.25, 1e-45, 1e-39, -1e-39,
    1e-8, 6e-8, 3e4, -3e4, 255.9, 256.0, 300.0, -300.0, 3e9, -3e9, 65504.0, 65520.0, 1.00390625, 1.01171875,
    123.456, 2147483647.0, 2147483648.0, -2147483648.0, -2147483648.5, -2147483649.0, 4294967297.0, 9.2e18,
    9.3e18, -9.3e18, 1e30, -1e30, 1e300, float("inf"), -float("inf"), float("nan"),
]  # fmt: skip
_INTS = [
    0, 1, -1, 2, -2, 3, -3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 127, -128, 12345, 1 << 24, 16777217,
]  # fmt: skip


def edge_values(dtype: str) -> torch.Tensor:
    """Values of a type at which implementations differ."""
    kind = DTYPES[dtype]
    if dtype == "bool":
        return torch.tensor([False, True])
    if kind.is_floating_point:
        return torch.tensor(_FLOATS, dtype=torch.float64).to(kind)
    info = torch.iinfo(kind)
    values = [*_INTS, info.min, info.min + 1, info.max, info.max - 1]
    return torch.tensor([v for v in values if info.min <= v <= info.max], dtype=kind)


def edge_pairs(dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """All pairs of edge values."""
    values = edge_values(dtype)
    a, b = torch.meshgrid(values, values, indexing="ij")
    return a.flatten().contiguous(), b.flatten().contiguous()


def run(op: str, dtype: str, *args: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The primitive's result as `dtype`, and the flag word."""
    names: Sequence[str] = [str(a.dtype).removeprefix("torch.") for a in args]
    out = torch.empty(args[0].shape, dtype=DTYPES[dtype])
    lanes = 8 if "float64" in names else 16  # one 512-bit vector, where such exist
    flag = MapKernel(op, names, dtype, lanes=lanes)(out.data_ptr(), [a.data_ptr() for a in args], out.numel())
    return out, flag


def identical(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Equal, with signs of zeros, and NaN equal to NaN."""
    if not a.dtype.is_floating_point:
        return a == b
    return ((a == b) & (torch.signbit(a) == torch.signbit(b))) | (torch.isnan(a) & torch.isnan(b))
