"""Maxima and minima as IEEE 754-2019 has them, +0 above -0. Which of two zeros eager takes depends on the place in the
tensor, whose vectors and whose scalars at the end differ, so that it cannot be the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def maximum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The greater, element by element; the sum of two zeros is -0 only where both are."""
    return torch.where((a == 0) & (b == 0), a + b, torch.maximum(a, b))


def minimum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The lesser, element by element."""
    return (
        torch.where((a == 0) & (b == 0), -(-a - b), torch.minimum(a, b))
        if _signed(a, b)
        else torch.minimum(a, b)
    )


def clamp(x: torch.Tensor, min: torch.Tensor | None = None, max: torch.Tensor | None = None) -> torch.Tensor:
    """x between two tensors."""
    x = x if min is None else maximum(x, min)
    return x if max is None else minimum(x, max)


def amax(x: torch.Tensor, dim: Any = (), keepdim: bool = False) -> torch.Tensor:
    """The greatest over axes, all by default."""
    top = torch.amax(x, dim, keepdim)
    if not _signed(x):
        return top
    positive = torch.amax(((x == 0) & ~x.signbit()).to(torch.int8), dim, keepdim) > 0
    return torch.where(top == 0, torch.where(positive, 0.0, -0.0).to(top.dtype), top)


def amin(x: torch.Tensor, dim: Any = (), keepdim: bool = False) -> torch.Tensor:
    """The least over axes, all by default."""
    return -amax(-x, dim, keepdim) if _signed(x) else torch.amin(x, dim, keepdim)


def aminmax(
    x: torch.Tensor, *, dim: int | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both."""
    axes = () if dim is None else dim
    return amin(x, axes, keepdim), amax(x, axes, keepdim)


def _signed(*tensors: torch.Tensor) -> bool:
    return any(t.is_floating_point() for t in tensors)


def _in_place(fn: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda x, *args, **kwargs: x.copy_(fn(x, *args, **kwargs))


def _with_place(op: Any, fn: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    return lambda x, dim, keepdim=False: (fn(x, dim, keepdim), op(x, dim, keepdim)[1])


IEEE: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.maximum.default: maximum,
    torch.ops.aten.max.other: maximum,
    torch.ops.aten.minimum.default: minimum,
    torch.ops.aten.min.other: minimum,
    torch.ops.aten.clamp.Tensor: clamp,
    torch.ops.aten.clamp_.Tensor: _in_place(clamp),
    torch.ops.aten.clamp_min.Tensor: maximum,
    torch.ops.aten.clamp_min_.Tensor: _in_place(maximum),
    torch.ops.aten.clamp_max.Tensor: minimum,
    torch.ops.aten.clamp_max_.Tensor: _in_place(minimum),
    torch.ops.aten.amax.default: amax,
    torch.ops.aten.amin.default: amin,
    torch.ops.aten.max.default: amax,
    torch.ops.aten.min.default: amin,
    torch.ops.aten.max.dim: _with_place(torch.ops.aten.max.dim, amax),
    torch.ops.aten.min.dim: _with_place(torch.ops.aten.min.dim, amin),
    torch.ops.aten.aminmax.default: aminmax,
}  # fmt: skip
"""Operators that the reference replaces."""
