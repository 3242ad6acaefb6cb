"""Whether an output that is worse over several draws is so by luck: errors that few roundings make, or that a sum near
zero magnifies, have such tails that one draw decides their rms over all.

By luck eager is the worse one as often and by as much. So the draws are compared pair by pair with the signed-rank test
(Wilcoxon, "Individual Comparisons by Ranking Methods", Biometrics Bulletin 1, 1945) on the logarithm of fused's error
over eager's: the rms of every part of the output, and the largest. Pairs without a difference are left out, equal
differences share the mean of their ranks, and the chance is counted, not approximated.

A number that many elements have, as the bound of a clamp, is rounded once, in all draws alike: it shows nothing. Where
a draw has other numbers too, they alone are compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import torch

from fusebound.verify.errors import Errors, Exact, Part, measure

SIGNIFICANT = 1e-4
"""Chance of such ranks, were neither worse: `verify` asks this of dozens of sets and outputs."""
_FEW = 1 << 12
"""Elements of an output that may be drawn several times."""


def is_significant(draws: Sequence[Errors]) -> bool:
    """Whether the draws of one output show that it is worse than eager's."""
    pairs: dict[str, list[tuple[float, float]]] = {"largest": []}
    for e in draws:
        parts = e.parts if e.once is None else (e.once,)
        pairs["largest"].append((parts[0].fused.largest, parts[0].eager.largest))
        for p in parts:
            pairs.setdefault(p.name, []).append((p.fused.norm, p.eager.norm))
    return any(_chance(found) < SIGNIFICANT for found in pairs.values())


def once(fused: torch.Tensor, eager: torch.Tensor, exact: Exact) -> Part | None:
    """The errors of the elements of a small output whose exact value no other element has; None where that are all of
    them, or none."""
    if not eager.is_floating_point() or eager.numel() >= _FEW:
        return None
    _, which, times = torch.unique(exact.value, return_inverse=True, return_counts=True)
    alone = times[which] == 1
    if not 0 < int(alone.sum()) < eager.numel():
        return None
    residue = None if exact.residue is None else exact.residue[alone]
    return measure(
        fused[alone], eager[alone], replace(exact, value=exact.value[alone], residue=residue)
    ).whole


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
