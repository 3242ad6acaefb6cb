"""The private corners of torch that the runtime uses, in one place, each with a public fallback."""

from __future__ import annotations

import torch


def _empty_strided(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype)


def _no_count(cdata: int) -> int:
    """Without a use count the pool's self-test fails and the pool stays off."""
    del cdata
    return 0


try:
    from torch._C._dynamo.guards import _empty_strided_cpu as empty_strided  # pyright: ignore
except ImportError:
    empty_strided = _empty_strided

use_count = getattr(torch._C, "_storage_Use_Count", _no_count)
