"""The user's word: pairs of operators that must not, or must, share a kernel (F901, F902)."""

from __future__ import annotations

from itertools import product

from fusebound.gates.base import Candidate, Evidence, Verdict
from fusebound.gates.rules import Pair, Rules, matches
from fusebound.ir.graph import UserOp

GATE = "rules"
FORBIDS, REQUIRES = "F901", "F902"


def check(c: Candidate, rules: Rules) -> Verdict | None:
    """The rule that speaks about this merge, or None; a ban is stronger than a demand."""
    for pair in rules.forbid:
        if (met := _meets(c, pair)) is not None:
            text = f"a rule keeps {met[0].label} and {met[1].label} apart ({pair[0]}, {pair[1]})"
            return Verdict(GATE, "fail", FORBIDS, text, (), _evidence(pair), "drop the forbid rule")
    for pair in rules.require:
        if (met := _meets(c, pair)) is not None:
            text = f"a rule demands {met[0].label} and {met[1].label} in one kernel ({pair[0]}, {pair[1]})"
            return Verdict(GATE, "pass", REQUIRES, text, (), _evidence(pair))
    return None


def _evidence(pair: Pair) -> tuple[Evidence, ...]:
    return (Evidence("rule", f"{pair[0]}, {pair[1]}"),)


def _meets(c: Candidate, pair: Pair) -> tuple[UserOp, UserOp] | None:
    """Two operators, one of each side, that match the pair in either order."""
    left, right = ([c.graph.user[u] for u in c.users(side)] for side in (c.a, c.b))
    for a, b in product(left, right):
        if (matches(a, pair[0]) and matches(b, pair[1])) or (matches(a, pair[1]) and matches(b, pair[0])):
            return a, b
    return None
