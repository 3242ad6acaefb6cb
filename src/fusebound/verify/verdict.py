"""The verdict on one output over several draws of values: all together, each alone, and what is luck."""

from __future__ import annotations

from collections.abc import Sequence

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
"""Elements from which on an rms error below the limit is known well enough."""


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
        few = len(draws) >= DRAWS and whole.whole.count < _KNOWN
        return ruling, few and max(single, share(whole)) > _ALMOST
    if not whole.explained or len(draws) < FEWEST:
        return ruling, len(draws) < FEWEST
    if is_significant(draws):
        return ruling, len(draws) < CERTAIN
    return Ruling("as eager", f"{ruling.detail}: by luck, eager is as often the worse one"), True
