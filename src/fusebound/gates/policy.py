"""What each policy allows (from tight to loose), as a verdict of its own."""

from __future__ import annotations

from fusebound.analysis.numerics import reduces
from fusebound.analysis.roofline import busy_users
from fusebound.analysis.space import Space
from fusebound.gates.base import Candidate, Evidence, Facts, Verdict
from fusebound.settings import POLICIES

GATE = "policy"

_LIMITS = {
    "none": "fuses nothing",
    "elementwise": "fuses no reductions",
    "loop": "fuses one level of reductions",
}
"""What the policies short of `tile` allow, from tight to loose."""


def check(c: Candidate, facts: Facts) -> Verdict | None:
    """A refusal by the policy, with the tightest one that allows the merge; None where this one does.

    `none` fuses nothing; `elementwise` no reductions; `loop` one level of reductions with what feeds it and
    what follows its result; `tile` and `library` whatever the gates pass. The two textbook policies have
    gates of their own (`fusebound.textbook`) and are not judged here.
    """
    if facts.policy not in _LIMITS:
        return None
    needed = _tightest(c)
    if POLICIES.index(facts.policy) >= POLICIES.index(needed):
        return None
    evidence = (Evidence("policy", facts.policy, "=", needed),)
    text = f"policy {facts.policy} {_LIMITS[facts.policy]}"
    return Verdict(GATE, "fail", "F900", text, tuple(sorted(c.nodes))[:1], evidence, f"policy={needed}")


def _tightest(c: Candidate) -> str:
    if not reduces(c.graph, c.nodes):
        return "elementwise"
    return "loop" if _levels(c) <= 1 else "tile"


def _levels(c: Candidate) -> int:
    """Reductions in a row, or 2 when the kernel walks a row again after one."""
    if isinstance(c.space, Space):
        return c.space.stages - 1
    return sum(
        1 for u in busy_users(c.graph, c.nodes) if reduces(c.graph, [n.id for n in c.graph.members[u.name]])
    )
