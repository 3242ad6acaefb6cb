"""The verdict on one output over several draws of values: all together, each alone, and what is luck."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from fusebound.analysis.numerics import rms_limit
from fusebound.analysis.tau import Tau
from fusebound.verify.alone import worst_draw
from fusebound.verify.errors import Errors, pooled
from fusebound.verify.luck import is_significant
from fusebound.verify.tolerance import Ruling, rule, share

DRAWS, FEWEST, CERTAIN, MOST = 8, 16, 32, 64
"""Draws of a small output, the fewest after which anything is called worse for good, those after which what is worse by
more than luck is, and the most."""
_ALMOST = 0.45
"""Share of what the draws may be off, alone or together, from which on more are wanted."""
_KNOWN = 1 << 14
"""Elements from which on an rms error is known well enough."""
_OFTEN = 4.0
"""How many times eager's the rms error of the median draw may be: one draw may hide it from the rms over all."""


def rule_on_draws(
    draws: Sequence[Errors], *, tau: Tau | None = None, numerics: str = "accurate", transcendentals: int = 0
) -> tuple[Ruling, bool]:
    """The verdict on the draws of one output by `tolerance.rule`, and whether more of them may change it."""
    whole = pooled(draws)
    ruling = rule(whole, tau=tau, numerics=numerics, transcendentals=transcendentals)
    if ruling.verdict in ("equal", "class changed") or not whole.dtype.is_floating_point:
        return ruling, False
    if tau is not None or numerics == "eager":
        return ruling, False
    single, text = worst_draw(draws)
    if single > 1:
        return Ruling("worse", text), len(draws) < FEWEST
    if ruling.ok:
        if len(draws) >= DRAWS and (text := _usually_worse(draws)):
            if is_significant(draws):
                return Ruling("worse", text), False
            return ruling, len(draws) < FEWEST
        few = len(draws) >= DRAWS and whole.whole.count < _KNOWN
        return ruling, few and max(single, share(whole)) > _ALMOST
    if draws[0].whole.count >= _KNOWN and not draws[0].explained:
        return ruling, False
    if not whole.explained or len(draws) < FEWEST:
        return ruling, len(draws) < FEWEST
    if is_significant(draws):
        return ruling, len(draws) < CERTAIN
    if whole.coarse:
        return Ruling("as eager", f"{ruling.detail}: moving intermediates by an ULP does as much"), False
    return Ruling("as eager", f"{ruling.detail}: by luck, eager is as often the worse one"), True


def _usually_worse(draws: Sequence[Errors]) -> str:
    """The rms errors of the median draw in words, where fused's is more than may be; else empty."""
    pairs = [(e.in_steps(e.whole.fused), e.in_steps(e.whole.eager)) for e in draws if e.whole.count]
    if not pairs:
        return ""
    fused, eager = (median(column) for column in zip(*pairs, strict=True))
    limit = rms_limit(eager, ulp=1) * _OFTEN
    text = f"rms error {fused:.3g} ULP on the median draw, eager {eager:.3g}, limit {limit:.3g}"
    return text if fused > limit else ""
