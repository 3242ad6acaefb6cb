"""Whether an output that is worse over several draws is so by luck: errors that few roundings make, or that a sum near
zero magnifies, have such tails that one draw decides their rms over all.

By luck eager is the worse one as often. So both are held against the rule draw by draw, each with the other for eager
(McNemar, "Note on the sampling error of the difference between correlated proportions", Psychometrika 12, 1947): with
m draws on which only one of them breaks it, the program is worse where it is the one on so many of them that a fair
coin shows as many with a probability under `SIGNIFICANT`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import comb

from fusebound.verify.errors import Errors
from fusebound.verify.tolerance import rule

SIGNIFICANT = 1e-3


def is_significant(draws: Sequence[Errors]) -> bool:
    """Whether the draws of one output show that it is worse than eager's."""
    pairs = [(rule(e).ok, rule(_exchanged(e)).ok) for e in draws]
    ours, theirs = pairs.count((False, True)), pairs.count((True, False))
    differ = ours + theirs
    return sum(comb(differ, k) for k in range(ours, differ + 1)) < SIGNIFICANT * 2**differ


def _exchanged(errors: Errors) -> Errors:
    """Fused for eager and eager for fused."""
    parts = (replace(p, fused=p.eager, eager=p.fused, excess=0.0) for p in errors.parts)
    return replace(errors, parts=tuple(parts), changes=())
