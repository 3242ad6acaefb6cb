"""The seed of a call whose random numbers are drawn by counter."""

from __future__ import annotations

import torch


def draw_seed() -> torch.Tensor:
    """A 0-d int64 below 2⁶³ from torch's default CPU generator, which it moves by one 64-bit number (two words of its
    Mersenne twister), however many numbers the call draws."""
    return torch.empty((), dtype=torch.int64).random_()
