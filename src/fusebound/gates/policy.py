"""What each policy allows (from tight to loose), as a verdict of its own."""

from __future__ import annotations

from fusebound.analysis.numerics import reduces
from fusebound.analysis.roofline import busy_users
from fusebound.analysis.space import Space
from fusebound.gates.base import Candidate, Evidence, Facts, Verdict

POLICIES = ("none", "textbook-strict", "textbook", "elementwise", "loop", "tile", "library")
GATE = "policy"


def check(c: Candidate, facts: Facts) -> Verdict | None:
    """A refusal by the policy, or None where it allows the merge.

    `none` fuses nothing; `elementwise` no reductions; `loop` one level of reductions with what feeds it and
    what follows its result; `tile` and `library` whatever the gates pass. The two textbook policies have
    gates of their own (`fusebound.textbook`) and are not judged here.
    """
    match facts.policy:
        case "none":
            return _refuse(c, facts, "fuses nothing")
        case "elementwise" if reduces(c.graph, c.nodes):
            return _refuse(c, facts, "fuses no reductions")
        case "loop" if (levels := _levels(c)) > 1:
            return _refuse(c, facts, f"fuses one level of reductions, not {levels}")
        case _:
            return None


def _levels(c: Candidate) -> int:
    """Reductions in a row, or 2 when the kernel walks a row again after one."""
    if isinstance(c.space, Space):
        return c.space.stages - 1
    return sum(
        1 for u in busy_users(c.graph, c.nodes) if reduces(c.graph, [n.id for n in c.graph.members[u.name]])
    )


def _refuse(c: Candidate, facts: Facts, why: str) -> Verdict:
    looser = (
        POLICIES[min(POLICIES.index(facts.policy) + 1, len(POLICIES) - 1)]
        if facts.policy != "none"
        else "tile"
    )
    evidence = (Evidence("policy", facts.policy, "=", "tile"),)
    text = f"policy {facts.policy} {why}"
    return Verdict(GATE, "fail", "F900", text, tuple(sorted(c.nodes))[:1], evidence, f"policy={looser}")
