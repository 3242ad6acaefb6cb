"""Gradients of normalisations, taken apart: their parts reduce over different axes, so no kernel holds them all.

With x̂ = (x - μ)·rstd and g the gradient times the weight, the operand's gradient is
`rstd·(g - mean(g) - x̂·mean(g·x̂))` (Ioffe and Szegedy 2015; Ba, Kiros and Hinton 2016), in float32 for half precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fusebound.capture.lower.context import wide_type

Gradients = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]


def _operand(g: torch.Tensor, unit: torch.Tensor, rstd: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """The gradient of the operand, from that of the normalised values."""
    axes = list(dims)
    return (g - g.mean(axes, True) - unit * (g * unit).mean(axes, True)) * rstd


def _sum(x: torch.Tensor, dims: Sequence[int], shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Over the axes that a parameter does not have."""
    return (x.sum(list(dims)) if dims else x).reshape(*shape).to(dtype)


def layer_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, shape: Sequence[int], mean: torch.Tensor, rstd: torch.Tensor,
    weight: torch.Tensor | None, bias: torch.Tensor | None, wanted: Sequence[bool],
) -> Gradients:  # fmt: skip
    wide = wide_type(x.dtype)
    g, unit = grad.to(wide), (x.to(wide) - mean.to(wide)) * rstd.to(wide)
    outer = x.dim() - len(shape)
    scaled = g if weight is None else g * weight.to(wide)
    inner = list(range(outer, x.dim()))
    dtype = x.dtype if weight is None else weight.dtype
    return (
        _operand(scaled, unit, rstd.to(wide), inner).to(x.dtype) if wanted[0] else None,
        _sum(g * unit, list(range(outer)), shape, dtype) if wanted[1] else None,
        _sum(g, list(range(outer)), shape, dtype) if wanted[2] else None,
    )


def group_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor | None,
    n: int, channels: int, hw: int, groups: int, wanted: Sequence[bool],
) -> Gradients:  # fmt: skip
    wide = wide_type(x.dtype)
    shape, stat = (n, groups, channels // groups, hw), (n, groups, 1, 1)
    g, w = grad.reshape(shape).to(wide), x.reshape(shape).to(wide)
    scale = rstd.to(wide).reshape(stat)
    unit = (w - mean.to(wide).reshape(stat)) * scale
    scaled = g if weight is None else g * weight.to(wide).reshape(1, *shape[1:3], 1)
    dtype = x.dtype if weight is None else weight.dtype
    return (
        _operand(scaled, unit, scale, [2, 3]).reshape(x.shape).to(x.dtype) if wanted[0] else None,
        _sum(g * unit, [0, 3], (channels,), dtype) if wanted[1] else None,
        _sum(g, [0, 3], (channels,), dtype) if wanted[2] else None,
    )


def batch_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None, running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None, mean: torch.Tensor | None, rstd: torch.Tensor | None, train: bool,
    eps: float, wanted: Sequence[bool],
) -> Gradients:  # fmt: skip
    wide = wide_type(x.dtype)
    if not train:
        assert running_mean is not None and running_var is not None
        mean, rstd = running_mean, torch.rsqrt(running_var.to(wide) + eps)
    assert mean is not None and rstd is not None
    dims, channel = [0, *range(2, x.dim())], (1, -1, *(1,) * (x.dim() - 2))
    scale = rstd.to(wide).reshape(channel)
    g, unit = grad.to(wide), (x.to(wide) - mean.to(wide).reshape(channel)) * scale
    scaled = g if weight is None else g * weight.to(wide).reshape(channel)
    d_x = _operand(scaled, unit, scale, dims) if train else scaled * scale
    dtype = x.dtype if weight is None else weight.dtype
    return (
        d_x.to(x.dtype) if wanted[0] else None,
        _sum(g * unit, dims, (x.shape[1],), dtype) if wanted[1] else None,
        _sum(g, dims, (x.shape[1],), dtype) if wanted[2] else None,
    )


GRADIENTS: dict[torch._ops.OperatorBase, Callable[..., Gradients]] = {
    torch.ops.aten.native_layer_norm_backward.default: layer_norm_backward,
    torch.ops.aten.native_group_norm_backward.default: group_norm_backward,
    torch.ops.aten.native_batch_norm_backward.default: batch_norm_backward,
}
