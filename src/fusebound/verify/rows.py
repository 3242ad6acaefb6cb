"""Rows of a tensor: how long they are in memory, one special value in each, and whole rows of -Inf."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

EDGES = {"nan at edges": (math.nan, math.nan), "inf at edges": (math.inf, -math.inf)}
"""Sets that put one of two values at an edge of each row."""
PLACES = 4
"""Edges of a row: its last element, the last of its last full vector, the first after that, its first."""
_LANES = 16
"""Elements of the widest float32 vector."""


def row_length(t: torch.Tensor) -> int:
    """Elements of a row in memory, for the kinds of special values to alternate; 16 where there is one
    row."""
    return t.shape[-1] if t.dim() > 1 and t.stride(-1) == 1 else 16


def edge(t: torch.Tensor, values: Sequence[float], turn: int, generator: torch.Generator) -> None:
    """One special value in each row, or in three of four where there are several, at an edge: from row to row and
    from draw to draw at another one."""
    if _expanded(t) or not t.dim():
        return
    row = t.shape[-1]
    full = row - row % _LANES
    places = torch.tensor((row - 1, max(full, 1) - 1, full if full < row else row - 1, 0))
    rows = t.numel() // row
    at = torch.arange(rows)
    levels = torch.tensor(values, dtype=torch.float64)
    chosen = levels[torch.randint(0, len(values), (rows,), generator=generator)]
    place = places[(at + turn) % PLACES]
    taken = ((at + turn // PLACES) % PLACES > 0) | (rows == 1)
    column = (*t.shape[:-1], 1)
    hit = (torch.arange(row) == place.reshape(column)) & taken.reshape(column)
    t.copy_(torch.where(hit, chosen.reshape(column), t.to(torch.float64)))


def mask_rows(t: torch.Tensor) -> None:
    """Every third row (last axis) of a matrix, or of more axes, becomes -Inf."""
    if t.dim() > 1 and not _expanded(t):
        t[..., ::3, :] = -math.inf


def _expanded(t: torch.Tensor) -> bool:
    """Whether one element in memory stands for several."""
    return any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape, strict=True))
