"""A residual block of convolution, batch norm and ReLU at inference, with statistics as after training."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ConvBnRelu(nn.Module):
    """The basic block of ResNet; x is (batch, channels, height, width) float32."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + x)


def _train_like(norm: nn.BatchNorm2d) -> None:
    """Give the norm running statistics and an affine part that are not the identity."""
    with torch.no_grad():
        norm.weight.uniform_(0.5, 1.5)
        norm.bias.normal_(0, 0.1)
    norm.running_mean = 0.1 * torch.randn(norm.num_features)
    norm.running_var = 0.5 + torch.rand(norm.num_features)


def build(*, small: bool = False) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A block of ResNet-18's first stage and one batch of feature maps."""
    torch.manual_seed(0)
    batch, channels, side = (1, 8, 9) if small else (8, 64, 56)
    block = ConvBnRelu(channels)
    _train_like(block.bn1)
    _train_like(block.bn2)
    return block.eval(), (torch.randn(batch, channels, side, side),)
