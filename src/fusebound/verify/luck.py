"""Whether an output that is worse over several draws is so by luck: errors that few roundings make, or that a sum near
zero magnifies, have such tails that one draw decides their rms over all.

By luck eager is the worse one as often and by as much. So the draws are compared pair by pair with the signed-rank test
(Wilcoxon, "Individual Comparisons by Ranking Methods", Biometrics Bulletin 1, 1945) on the logarithm of fused's error
over eager's: the rms of every part of the output, and the largest. Pairs without a difference are left out, equal
differences share the mean of their ranks, and the chance is counted, not approximated.

What many elements of a draw share, as the sum of a row that is repeated, is one number. One that comes again in other
draws, as the bound of a clamp, was rounded once for all of them, and shows nothing. Nor does a draw that eager's own
values judge: any difference would be fused's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import torch

from fusebound.verify.errors import Distinct, Errors, Exact, measure

SIGNIFICANT = 1e-4
"""Chance of such ranks, were neither worse: `verify` asks this of dozens of sets and outputs."""
_FEW = 1 << 12
"""Elements of an output that may be drawn several times."""
_SINGLE = 16
"""Elements that are all told apart: a function of few values gives one of them on every draw."""


def is_significant(draws: Sequence[Errors]) -> bool:
    """Whether the draws of one output show that it is worse than eager's."""
    again = Counter(value for e in draws if e.distinct for value, *_ in e.distinct.often)
    pairs: dict[str, list[tuple[float, float]]] = {}
    for e in (e for e in draws if not e.coarse):
        for name, fused, eager in _figures(e, again):
            pairs.setdefault(name, []).append((fused, eager))
    return any(_chance(found) < SIGNIFICANT for found in pairs.values())


def _figures(e: Errors, again: Counter[float]) -> Iterator[tuple[str, float, float]]:
    """What a draw says: by name, fused's error and eager's."""
    if e.distinct is None:
        yield "largest", e.whole.fused.largest, e.whole.eager.largest
        yield from ((p.name, p.fused.norm, p.eager.norm) for p in e.parts)
        return
    own = [(f, g) for value, f, g in e.distinct.often if again[value] == 1]
    mine, theirs = zip((0.0, 0.0), *own, strict=True)
    once = e.distinct.once
    yield "largest", max(once.fused.largest, *mine), max(once.eager.largest, *theirs)
    yield e.whole.name, math.hypot(once.fused.norm, *mine), math.hypot(once.eager.norm, *theirs)


def distinct(fused: torch.Tensor, eager: torch.Tensor, exact: Exact) -> Distinct | None:
    """The numbers of a small output, told apart by their exact value; None where each of many elements has its own."""
    if not eager.is_floating_point() or eager.numel() >= _FEW:
        return None
    values, which, times = torch.unique(exact.value, return_inverse=True, return_counts=True)
    told = values.numel() == eager.numel() <= _SINGLE
    if values.numel() == eager.numel() and not told:
        return None
    by_itself = (times == 1) & (not told)
    alone = by_itself[which]
    residue = None if exact.residue is None else exact.residue[alone]
    once = measure(
        fused[alone], eager[alone], replace(exact, value=exact.value[alone], residue=residue)
    ).whole
    mine, theirs = (_largest(t, exact, which, len(values))[~by_itself] for t in (fused, eager))
    found = zip(values[~by_itself].tolist(), mine.tolist(), theirs.tolist(), strict=True)
    return Distinct(once, tuple((v, f, e) for v, f, e in found if math.isfinite(f + e)))


def _largest(t: torch.Tensor, exact: Exact, which: torch.Tensor, count: int) -> torch.Tensor:
    """The largest error of `t` at each of so many values; `which` says the value of each element."""
    errors = t.to(torch.float64) - exact.value
    errors = (errors if exact.residue is None else errors - exact.residue).abs()
    return errors.new_zeros(count).scatter_reduce_(0, which.flatten(), errors.flatten(), "amax")


def _chance(pairs: Sequence[tuple[float, float]]) -> float:
    """The probability that fused ranks as high as it does or higher, if each sign were a coin's."""
    logs = [x for f, e in pairs if (x := round(_log(f) - _log(e), 6))]
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
