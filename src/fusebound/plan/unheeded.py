"""What of the user's rules came to nothing in a plan, a sentence each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from fusebound.gates.rules import Pair, Rules, matches
from fusebound.plan.explain import Why, why
from fusebound.plan.plan import Plan
from fusebound.target.target import Target


def unheeded(plan: Plan, target: Target) -> Iterator[str]:
    """Patterns that name no operator, and demands that no kernel meets, with the obstacle."""
    for pattern in plan.rules.unmatched(plan.graph):
        yield f"no operator of {plan.graph.name or 'the graph'} is called {pattern!r}, which the rules name"
    for pair in plan.rules.require:
        if not _met(plan, pair) and (found := _apart(plan, pair, target)) is not None:
            yield f"a rule demands {found.a.label} and {found.b.label} in one kernel, and {_refusal(found)}"


def _met(plan: Plan, pair: Pair) -> bool:
    demand = Rules(require=(pair,))
    everywhere = ((p, g) for _, p in plan.everywhere() for g in p.groups if g.is_kernel)
    return any(demand.requires(p.graph.user[u] for u in g.users) for p, g in everywhere)


def _apart(plan: Plan, pair: Pair, target: Target) -> Why | None:
    """The first two operators that a demand names, judged; None where it names no two of one graph."""
    for _, p in plan.everywhere():
        named = ([u for u in p.graph.user_ops if matches(u, pattern)] for pattern in pair)
        for a, b in product(*named):
            if a is not b:
                return why(p, a.name, b.name, target)
    return None


def _refusal(found: Why) -> str:
    veto = found.judgement.first
    if veto is None:
        return "the policy merges nothing that would join them"
    return f"that cannot be: {veto.code}, {veto.message}"
