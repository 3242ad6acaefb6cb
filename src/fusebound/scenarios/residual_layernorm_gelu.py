"""Residual add, LayerNorm and GELU: three memory-bound operators between two matmuls."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def residual_layernorm_gelu(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x and residual are (rows, columns) float32, weight and bias (columns,)."""
    hidden = x + residual
    normed = F.layer_norm(hidden, (hidden.shape[-1],), weight, bias)
    return F.gelu(normed)


def build(*, small: bool = False) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """The function with activations of 8192 x 2048 (64 MB each)."""
    torch.manual_seed(0)
    rows, columns = (33, 127) if small else (8192, 2048)
    x, residual = torch.randn(rows, columns), torch.randn(rows, columns)
    weight, bias = 1 + 0.1 * torch.randn(columns), 0.1 * torch.randn(columns)
    return residual_layernorm_gelu, (x, residual, weight, bias)
