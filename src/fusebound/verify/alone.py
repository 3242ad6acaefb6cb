"""Draws of one output judged one by one: a fault that shows on some values only is averaged away over all of them.

The rms error of one draw is random, and how widely it spreads depends on the program: elements of a row may share one.
So eager's own spread over the draws is measured, as the mean m and the deviation s of the logarithm of its rms error in
ULP at the rms of the draw, and a draw is worse where

    rms(fused − fp64) > max(1.25 · max(rms(eager − fp64), exp(m + 6·s) ULP), 2 ULP)

unless the program's own sensitivity explains as much (`Errors.explained`), and it has few elements, whose errors spread
most widely, or nothing but eager to be judged by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pstdev

from fusebound.analysis.numerics import rms_limit
from fusebound.verify.errors import Errors

DRAWS = 8
"""Draws below which their spread is not known."""
FEW = 32
"""Elements below which the spread of a rounding error is too wide to say alone what is a fault."""
DEVIATIONS = 6
_ANY = 700.0
"""Logarithm of an error that is as good as any: its exponential is a float64 still."""


def worst_draw(draws: Sequence[Errors]) -> tuple[float, str]:
    """The largest error of a draw as a share of what it may be, and in words; 0 where too few draws say anything."""
    judged = [e for e in draws if e.dtype.is_floating_point and e.whole.count]
    if len(judged) < DRAWS:
        return 0.0, ""
    pairs = [(e.in_steps(e.whole.fused), e.in_steps(e.whole.eager), _is_explained(e)) for e in judged]
    logs = [math.log(eager) for _, eager, _ in pairs if eager]
    usual = math.exp(min(fmean(logs) + DEVIATIONS * pstdev(logs), _ANY)) if logs else 0.0
    most, text = 0.0, ""
    for fused, eager, explained in pairs:
        limit = rms_limit(max(eager, usual), ulp=1)
        part = min(fused / limit, 1.0) if explained else fused / limit
        if part > most:
            most = part
            text = f"rms error {fused:.3g} ULP on one draw, eager {eager:.3g}, limit {limit:.3g}"
    return most, text


def _is_explained(e: Errors) -> bool:
    return e.explained and (e.coarse or e.whole.count < FEW)
