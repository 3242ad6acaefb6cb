"""The counter-based generator over arrays, for simulation; `codegen.math.philox` has it on vectors, and the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def block(counter: tuple[Array, Array, Array, Array], key: tuple[int, int]) -> tuple[Array, ...]:
    """The four 32-bit words that Philox4x32-10 gives for each counter (four words, in uint64) under a key."""
    a, b, c, d = counter
    k0, k1 = (np.uint64(k) for k in key)
    for _ in range(10):
        first, second = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = (second >> _HALF) ^ b ^ k0, second & _LOW, (first >> _HALF) ^ d ^ k1, first & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return a, b, c, d


def words(seed: int, draw: int, shape: tuple[int, ...]) -> tuple[Array, ...]:
    """The four words of every element of draw number `draw` in a call with this seed, as int32 of the shape.

    The counter is (index low, index high, draw, 0), the index an element's row-major place in the shape; the seed's
    64 bits are the key.
    """
    index = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64).reshape(shape)
    number = np.full(shape, draw, np.uint64)
    key = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    found = block((index & _LOW, index >> _HALF, number, np.zeros_like(index)), key)
    return tuple(w.astype(np.uint32).view(np.int32) for w in found)
