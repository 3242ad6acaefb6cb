"""A ConvNeXt block at inference: depthwise convolution, LayerNorm and MLP over channels, layer scale."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ConvNeXtBlock(nn.Module):
    """x is (batch, dim, height, width) float32."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.expand = nn.Linear(dim, 4 * dim)
        self.contract = nn.Linear(4 * dim, dim)
        self.scale = nn.Parameter(0.1 * torch.randn(dim))

    def forward(self, x: Tensor) -> Tensor:
        h = self.depthwise(x).permute(0, 2, 3, 1)
        h = F.gelu(self.expand(self.norm(h)))
        h = self.scale * self.contract(h)
        return x + h.permute(0, 3, 1, 2)


def build(*, small: bool = False) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A block of the first stage of ConvNeXt-T and one batch of feature maps."""
    torch.manual_seed(0)
    batch, dim, side = (1, 16, 9) if small else (4, 96, 56)
    return ConvNeXtBlock(dim).eval(), (torch.randn(batch, dim, side, side),)
