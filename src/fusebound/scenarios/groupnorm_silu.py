"""The residual block of a diffusion U-Net: GroupNorm, SiLU and convolution twice, with a time embedding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DiffusionResBlock(nn.Module):
    """x is (batch, channels, height, width) float32, time (batch, embedding)."""

    def __init__(self, channels: int, groups: int, embedding: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(embedding, channels)
        self.norm2 = nn.GroupNorm(groups, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(time))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return x + h


def build(*, small: bool = False) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A block of the first level of Stable Diffusion's U-Net at half its side, and a pair of latents."""
    torch.manual_seed(0)
    channels, groups, embedding, side = (16, 4, 32, 9) if small else (320, 32, 1280, 32)
    x, time = torch.randn(2, channels, side, side), torch.randn(2, embedding)
    return DiffusionResBlock(channels, groups, embedding).eval(), (x, time)
