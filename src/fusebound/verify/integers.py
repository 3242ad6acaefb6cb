"""How the values of a tensor of integers or bools are drawn."""

from __future__ import annotations

import torch

from fusebound.verify.rows import row_length


def bools(given: torch.Tensor, n: int, generator: torch.Generator) -> torch.Tensor:
    """For the n elements in memory: rows that are mixed, all true, all false, or true once."""
    places, row = torch.arange(n), row_length(given)
    which = (places // row + int(torch.randint(0, 5, (), generator=generator))) % 5
    once = torch.randint(0, row, (n // row + 1,), generator=generator)[places // row] == places % row
    mixed = torch.rand(n, generator=generator) < 0.5
    return torch.where(which == 2, True, torch.where(which == 3, False, torch.where(which == 4, once, mixed)))


def integers(given: torch.Tensor, n: int, generator: torch.Generator) -> torch.Tensor:
    """n integers over the range of the given ones; where some are negative, of the given ones themselves:
    they may be marks, such as the index that a loss ignores."""
    low, high = int(given.min()), int(given.max())
    if low < 0:
        return given.reshape(-1)[torch.randint(0, given.numel(), (n,), generator=generator)]
    return torch.randint(low, high + 1, (n,), generator=generator).to(given.dtype)


def any_integers(dtype: torch.dtype, n: int, generator: torch.Generator) -> torch.Tensor:
    """n integers over all of a type: of every magnitude, and next to its bounds, to zero, and to what float32 and
    float64 still count. Zero alone is left out: a division by it raises in eager, and then says nothing of the
    others."""
    info = torch.iinfo(dtype)
    near = [
        b + d for b in (info.min, info.max, 0, 2**24, -(2**24), 2**53, -(2**53)) for d in (-2, -1, 0, 1, 2)
    ]
    levels = torch.tensor([n for n in near if n and info.min <= n <= info.max], dtype=dtype)
    edges = levels[torch.randint(0, len(levels), (n,), generator=generator)]
    bits = torch.randint(-(2**63), 2**63 - 1, (n,), generator=generator)
    drawn = (bits >> torch.randint(64 - info.bits, 64, (n,), generator=generator)).to(dtype)
    drawn = torch.where(torch.rand(n, generator=generator) < 0.5, edges, drawn)
    return torch.where(drawn == 0, 1, drawn).to(dtype)


def put_index(given: torch.Tensor, index: int) -> None:
    """Make the last element an index, or the bound of its type nearest to it."""
    bounds = torch.iinfo(given.dtype)
    given[(-1,) * given.dim()] = min(max(index, bounds.min), bounds.max)
