"""Work along other axes than the rows: transposes, columns, scans, picks."""

from __future__ import annotations

from math import ceil, sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.suite.case import Case, Tensors, count, like, normal

LENGTH, WIDTH = 32, 256
ENTRY = 64


def transpose_scale(x: Tensor) -> Tensor:
    """A transposed copy, scaled."""
    return (x.t() * 0.125).contiguous()


def column_statistics(x: Tensor) -> Tensors:
    """Mean and variance of each column."""
    return x.mean(0), x.var(0, correction=0)


def masked_mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """The mean over the positions that count: hidden (batch, length, width), mask (batch, length) of 0 and 1."""
    weight = mask[:, :, None].to(hidden.dtype)
    return (hidden * weight).sum(1) / weight.sum(1).clamp_min(1)


def cumulative_sum(x: Tensor) -> Tensor:
    """Running sums of each row."""
    return x.cumsum(-1)


def argmax_gather(scores: Tensor, table: Tensor) -> Tensor:
    """The table's entry for the best score of each row."""
    return F.embedding(scores.argmax(-1), table)


def _square(nbytes: int, dtype: torch.dtype) -> Tensors:
    """A square matrix, its side a multiple of 16."""
    side = ceil(sqrt(nbytes / dtype.itemsize) / 16) * 16
    return normal(dtype, (side, side))


def _sequences(nbytes: int, dtype: torch.dtype) -> Tensors:
    batch = count(nbytes, dtype, LENGTH * WIDTH)
    (hidden,) = normal(dtype, (batch, LENGTH, WIDTH))
    lengths = torch.arange(batch) % LENGTH + 1
    return hidden, (torch.arange(LENGTH) < lengths[:, None]).to(torch.int32)


def _scores(nbytes: int, dtype: torch.dtype) -> Tensors:
    """Scores of 1,024 entries a row; the largest of each row occurs once."""
    scores, table = normal(dtype, (count(nbytes, dtype, 1024), 1024), (1024, ENTRY))
    best = torch.arange(len(scores)) * 37 % 1024
    scores.scatter_(1, best[:, None], 10.0)
    return scores, table


CASES = (
    Case(transpose_scale, _square),
    Case(column_statistics, like(1)),
    Case(masked_mean_pool, _sequences),
    Case(cumulative_sum, like(1)),
    Case(argmax_gather, _scores),
)
