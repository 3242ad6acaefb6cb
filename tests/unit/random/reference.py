"""Random numbers by counter as docs/random.md defines them, in plain Python integers: nothing is shared with what it
checks."""

from __future__ import annotations

import math

import torch

SEED = 20231

MASK = 0xFFFFFFFF


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first, second = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (second >> 32) ^ c1 ^ k0, second & MASK, (first >> 32) ^ c3 ^ k1, first & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def seed_of_next_call() -> int:
    """The seed that the next call will draw; the generator stays where it is."""
    state = torch.get_rng_state()
    seed = int(torch.empty((), dtype=torch.int64).random_())
    torch.set_rng_state(state)
    return seed


def words(seed: int, draw: int, count: int) -> list[tuple[int, int, int, int]]:
    """The blocks of the first `count` elements of a draw."""
    return [philox((i & MASK, i >> 32, draw, 0), (seed & MASK, seed >> 32)) for i in range(count)]


def signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def keep(seed: int, draw: int, shape: tuple[int, ...], p: float) -> torch.Tensor:
    """A Bernoulli mask with probability p."""
    flags = [signed(w[0]) + (1 << 31) < round(p * 2**32) for w in words(seed, draw, math.prod(shape))]
    return torch.tensor(flags).reshape(shape)


def uniform(seed: int, draw: int, shape: tuple[int, ...]) -> torch.Tensor:
    """float32 in [0, 1)."""
    values = [(w[0] & 0xFFFFFF) * 2.0**-24 for w in words(seed, draw, math.prod(shape))]
    return torch.tensor(values, dtype=torch.float32).reshape(shape)


def normal(seed: int, draw: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Box and Muller in float64, of float32's bits."""
    values = [
        math.sqrt(-2 * math.log(1 - (w[0] & 0xFFFFFF) * 2.0**-24))
        * math.sin(2 * math.pi * ((w[1] & 0xFFFFFF) * 2.0**-24 - 0.5))
        for w in words(seed, draw, math.prod(shape))
    ]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def integers(seed: int, draw: int, shape: tuple[int, ...], low: int, high: int) -> torch.Tensor:
    values = [
        low + ((signed(w[0]) + (1 << 31)) * (high - low) >> 32) for w in words(seed, draw, math.prod(shape))
    ]
    return torch.tensor(values).reshape(shape)
