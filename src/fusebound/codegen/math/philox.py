"""Philox4x32-10 on vectors: the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
as easy as 1, 2, 3" (SC 2011).

Lanes are 64 bits wide and hold 32-bit words in their low halves, so that the product of two words is one
instruction. What else a lane holds above a word is ignored: each multiplication reads the low half alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.llvm_types import with_elem

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
"""What the two words of the key grow by from round to round."""


def word(fn: Fn, seed: Reg, index: Reg, draw: int, which: int) -> Reg:
    """Word `which` of the block that counter (index low, index high, draw, 0) gives under the key `seed`.

    `seed` and `index` are i64 vectors of as many lanes; the result has i32 lanes.
    """
    low = fn.like(0xFFFFFFFF, index)
    half = fn.like(32, index)
    counter = [index, fn.op("lshr", index, half), fn.like(draw, index), fn.like(0, index)]
    key = [seed, fn.op("lshr", seed, half)]
    for round in range(ROUNDS):
        if round:
            key = [fn.op("add", k, fn.like(w, k)) for k, w in zip(key, WEYL, strict=True)]
        counter = _round(fn, counter, key, low)
    return fn.cast("trunc", counter[which], with_elem(index.type, "i32"))


def _round(fn: Fn, c: Sequence[Reg], key: Sequence[Reg], low: Reg) -> list[Reg]:
    """Two products; their upper halves are mixed with the other words and the key."""
    first, second = (
        fn.op("mul", fn.op("and", c[i], low), fn.like(m, low))
        for i, m in zip((0, 2), MULTIPLIERS, strict=True)
    )
    half = fn.like(32, low)
    return [
        fn.op("xor", fn.op("xor", fn.op("lshr", second, half), c[1]), key[0]),
        second,
        fn.op("xor", fn.op("xor", fn.op("lshr", first, half), c[3]), key[1]),
        first,
    ]
