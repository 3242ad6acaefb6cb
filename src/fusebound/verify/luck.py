"""Whether an output that is worse over several draws is so by luck: errors that few roundings make, or that a sum near
zero magnifies, have such tails that one draw decides their rms over all.

By luck eager is the worse one as often and by as much. So the draws are compared pair by pair with the signed-rank test
(Wilcoxon, "Individual Comparisons by Ranking Methods", Biometrics Bulletin 1, 1945) on the logarithm of fused's error
over eager's: the rms of every part of the output, and the largest. Pairs without a difference are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from fusebound.verify.errors import Errors

_SURE = NormalDist().inv_cdf(0.999)
"""Standard deviations by which the sum of ranks has to exceed its mean; chance does that once in a thousand times."""


def is_significant(draws: Sequence[Errors]) -> bool:
    """Whether the draws of one output, which have the same parts, show that it is worse than eager's."""
    by_part = zip(*([(p.fused.norm, p.eager.norm) for p in e.parts] for e in draws), strict=True)
    largest = [(e.whole.fused.largest, e.whole.eager.largest) for e in draws]
    return any(map(_mostly_above, (*by_part, largest)))


def _mostly_above(pairs: Sequence[tuple[float, float]]) -> bool:
    logs = [math.log(f / e) if f and e else math.copysign(math.inf, f - e) for f, e in pairs if f != e]
    n, ranked = len(logs), sorted(logs, key=abs)
    above = sum(rank for rank, x in enumerate(ranked, 1) if x > 0)
    return above - n * (n + 1) / 4 > _SURE * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
