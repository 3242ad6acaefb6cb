"""Draws of one output judged one by one: a fault that shows on some values only is averaged away over all of them.

Eager's error on one draw is random: over n independent errors its rms deviates by about 1/√(2n), where n counts the
elements that it hangs on. Three times that is allowed. Eager's error is taken to be at least ρ ULP at the rms of the
draw, as it is over all draws:

    rms(fused − fp64) ≤ max(1.25 · (1 + 3/√(2n)) · max(rms(eager − fp64), ρ ULP), 2 ULP)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusebound.analysis.numerics import RMS_SLACK, RMS_ULP
from fusebound.verify.errors import Errors

FEWEST = 32
"""Elements below which the error of one draw is luck."""


def worst(draws: Sequence[Errors], together: int = 1) -> tuple[float, str]:
    """The largest error of a draw as a share of what it may be, and in words; 0 where all have too few elements.
    So many elements `together`, a row, have one error."""
    judged = [e for e in draws if e.dtype.is_floating_point and e.whole.count >= FEWEST]
    count = sum(e.whole.count for e in judged)
    squares = sum(e.whole.count * (e.whole.rms(e.whole.eager) / e.step) ** 2 for e in judged)
    usual = math.sqrt(squares / count) if count else 0.0
    most, text = 0.0, ""
    for e in judged:
        fused, eager = e.whole.rms(e.whole.fused), e.whole.rms(e.whole.eager)
        slack = RMS_SLACK * (1 + 3 / math.sqrt(2 * max(min(e.whole.weighty, e.whole.count / together), 1)))
        limit = max(slack * max(eager, usual * e.step), RMS_ULP * e.step)
        if fused > most * limit:
            most = fused / limit
            text = f"rms error {fused:.3g} on one draw, eager {eager:.3g}, limit {limit:.3g}"
    return most, text
