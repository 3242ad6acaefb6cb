"""Normalisation over channels, and images made ready for a network."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.suite.case import Case, Tensors, count, normal

CHANNELS, SIDE, GROUPS, EPS = 64, 28, 32, 1e-5
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's, of red, green and blue in [0, 1]."""


def batch_norm_relu(x: Tensor, mean: Tensor, var: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Batch norm at inference and ReLU, NCHW."""
    return F.relu(F.batch_norm(x, mean, var, w, b, training=False, eps=EPS))


def batch_norm_train(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Batch norm by the statistics of the batch over N, H, W."""
    return F.batch_norm(x, None, None, w, b, training=True, eps=EPS)


def group_norm_silu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Group norm and SiLU, NCHW."""
    return F.silu(F.group_norm(x, GROUPS, w, b, EPS))


def preprocess(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """uint8 NHWC in 0..255 to normalized NCHW in the dtype of `mean`."""
    scaled = pixels.permute(0, 3, 1, 2).to(mean.dtype) / 255
    return ((scaled - mean[:, None, None]) / std[:, None, None]).contiguous()


def _channels(vectors: int) -> Callable[[int, torch.dtype], Tensors]:
    def tensors(nbytes: int, dtype: torch.dtype) -> Tensors:
        shape = (count(nbytes, dtype, CHANNELS * SIDE * SIDE), CHANNELS, SIDE, SIDE)
        x, *rest = normal(dtype, shape, *[(CHANNELS,)] * vectors)
        return x, *rest

    return tensors


def _with_statistics(nbytes: int, dtype: torch.dtype) -> Tensors:
    x, mean, spread, w, b = _channels(4)(nbytes, dtype)
    return x, mean, spread.square() + 0.5, w, b


def _pixels(nbytes: int, dtype: torch.dtype) -> Tensors:
    """As many pixels as the result has numbers."""
    generator = torch.Generator().manual_seed(0)
    shape = (count(nbytes, dtype, 3 * 32 * 32), 32, 32, 3)
    pixels = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
    return pixels, torch.tensor(MEAN, dtype=dtype), torch.tensor(STD, dtype=dtype)


CASES = (
    Case(batch_norm_relu, _with_statistics),
    Case(batch_norm_train, _channels(2)),
    Case(group_norm_silu, _channels(2)),
    Case(preprocess, _pixels),
)
