"""When a fused result is no worse than eager's: the rule of docs/gates.md (Precision), per output.

    rms(fused − fp64) ≤ max(1.25 · rms(eager − fp64), 2 ULP at the output's rms)
    |fused − fp64| ≤ max(2 · max|eager − fp64|, 4 ULP of that element) at every element

on the whole output and on its tails alone, and no change of class (NaN, +Inf, -Inf, finite, sign of zero)
against both the reference and eager. Integers and bools lie within what eager and the references give.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusebound.analysis.numerics import ROUNDING, max_limit, rms_limit
from fusebound.analysis.tau import Tau
from fusebound.verify.classes import GAINED
from fusebound.verify.errors import Errors, Part, saturated, step
from fusebound.words import count

NEARER = 0.9
"""Share of eager's rms error below which the fused result is called nearer, not merely as near."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """`verdict` is "equal", "nearer fp64", "as eager", "within τ", "worse" or "class changed"."""

    verdict: str
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.verdict not in ("worse", "class changed")


def rule(
    errors: Errors, *, tau: Tau | None = None, numerics: str = "accurate", transcendentals: int = 0
) -> Ruling:
    """The verdict on one output.

    With `tau`, by which the errors were measured, |fused − eager| ≤ τ at every element. With
    `numerics="eager"` the output has to equal eager's bit for bit, except that each of the program's
    `transcendentals` (operators that are not correctly rounded) may set the two 2 ULP apart, both being within
    1 ULP of the true value. Otherwise the rule at the top of this file.
    """
    if errors.forbidden:
        return Ruling(
            "class changed" if errors.dtype.is_floating_point else "worse", str(errors.forbidden[0])
        )
    if errors.equal:
        return Ruling("equal")
    if not errors.dtype.is_floating_point:
        return Ruling("as eager", "differs within what eager and the references give")
    if tau is not None:
        text = f"max|fused − eager| {errors.whole.apart.largest:.3g}, {errors.tau_share:.3g} of τ {tau}"
        return Ruling("within τ" if errors.tau_share <= 1 else "worse", text)
    if numerics == "eager":
        return _as_eager(errors, transcendentals)
    for part in errors.parts:
        complaint = _complaint(part, errors)
        if complaint:
            return Ruling("worse", complaint)
    whole = errors.whole
    nearer = any(c.kind == GAINED for c in errors.changes) or (whole.fused.norm < NEARER * whole.eager.norm)
    on_jump = f"{count(errors.jumps, 'element')} on a jump of the program" if errors.jumps else ""
    return Ruling("nearer fp64" if nearer else "as eager", on_jump)


def share(errors: Errors) -> float:
    """The errors of a floating output, their rms and the largest, as a share of what the rule allows."""
    whole = errors.whole
    limits = rms_limit(whole.rms(whole.eager), errors.step), max_limit(whole.eager.largest)
    found = whole.rms(whole.fused), whole.excess
    return max((f / limit for f, limit in zip(found, limits, strict=True) if limit), default=0.0)


def _as_eager(errors: Errors, transcendentals: int) -> Ruling:
    if errors.jumps and not transcendentals:
        return Ruling("worse", f"{count(errors.jumps, 'element')} unlike eager's, on a jump")
    gained = [c for c in errors.changes if c.kind == GAINED]
    if gained and not transcendentals:
        return Ruling("class changed", str(gained[0]))
    limit = ROUNDING * transcendentals
    # What cancels after such an operator keeps the operand's error: an ULP is at least that at the output's rms.
    apart = errors.whole.apart
    far = min(apart.ulps, apart.largest / errors.step)
    text = f"{far:.3g} ULP from eager, limit {limit:g}"
    return Ruling("as eager" if far <= limit and far < saturated(errors.dtype) else "worse", text)


def _complaint(part: Part, errors: Errors) -> str:
    """What breaks the rule on `part`, with numbers, or nothing."""
    whole = errors.whole
    fused, eager = part.rms(part.fused), part.rms(part.eager)
    usual = eager
    if part is not whole:
        # Eager's rms over n elements is itself random, with a relative deviation of about 1/√(2n).
        usual = max(eager * (1 + 3 / math.sqrt(2 * max(part.count, 1))), whole.rms(whole.eager))
    limit = rms_limit(usual, step(part.value_rms, errors.dtype))
    if fused > limit:
        return f"{part.name}: rms error {fused:.3g}, eager {eager:.3g}, limit {limit:.3g}"
    if part.excess > max_limit(whole.eager.largest):
        return f"{part.name}: max error {part.excess:.3g}, eager {whole.eager.largest:.3g}"
    return ""
