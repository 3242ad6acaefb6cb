"""Whether an output that is worse over several draws is so by luck: errors that few roundings make, or that a sum near
zero magnifies, have such tails that one draw decides their rms over all.

By luck eager is the worse one as often and by as much. So the draws are compared pair by pair with the signed-rank test
(Wilcoxon, "Individual Comparisons by Ranking Methods", Biometrics Bulletin 1, 1945) on the logarithm of fused's error
over eager's: the rms of every part of the output, and the largest. Pairs without a difference are left out, equal
differences share the mean of their ranks, and the chance is counted, not approximated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from fusebound.verify.errors import Errors

SIGNIFICANT = 1e-4
"""Chance of such ranks, were neither worse: `verify` asks this of dozens of sets and outputs."""


def is_significant(draws: Sequence[Errors]) -> bool:
    """Whether the draws of one output show that it is worse than eager's."""
    pairs: dict[str, list[tuple[float, float]]] = {"largest": []}
    for e in draws:
        pairs["largest"].append((e.whole.fused.largest, e.whole.eager.largest))
        for p in e.parts:
            pairs.setdefault(p.name, []).append((p.fused.norm, p.eager.norm))
    return any(_chance(found) < SIGNIFICANT for found in pairs.values())


def _chance(pairs: Sequence[tuple[float, float]]) -> float:
    """The probability that fused ranks as high as it does or higher, if each sign were a coin's."""
    logs = [round(_log(f) - _log(e), 6) for f, e in pairs if f != e]
    above, doubled, at = 0, list[int](), 0
    for _, same in groupby(sorted(logs, key=abs), key=abs):
        ties = list(same)
        rank = 2 * at + len(ties) + 1
        doubled += [rank] * len(ties)
        above += rank * sum(x > 0 for x in ties)
        at += len(ties)
    chances = np.zeros(sum(doubled) + 1)
    chances[0] = 1.0
    for rank in doubled:
        chances[rank:] += chances[:-rank].copy()
        chances /= 2
    return float(chances[above:].sum())


def _log(error: float) -> float:
    return math.log(error) if error else -1e3
