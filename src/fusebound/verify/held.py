"""Which τ an output is held to: that of a rule on the kernel that computes it, else the plan's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fusebound.analysis.tau import Tau
from fusebound.plan.plan import Plan
from fusebound.verify.call import Leaf


@dataclass(frozen=True, slots=True)
class Held:
    """τ by the name of an output, as comparisons call it; `default` for all others."""

    default: Tau | None = None
    by_name: Mapping[str, Tau | None] = field(default_factory=dict[str, Tau | None])

    def of(self, name: str) -> Tau | None:
        return self.by_name.get(name, self.default)


NOTHING_HELD = Held()


def mutated(leaf: Leaf) -> str:
    """What an input that the call changed is called."""
    return f"{leaf.kind} input {leaf.name!r} (mutated)"


def beside(leaf: Leaf) -> str:
    """What an input is called that changes because it shares memory with one that the program writes."""
    return f"{leaf.kind} input {leaf.name!r} (shares memory with a mutated one)"


def held(plan: Plan, values: Sequence[str], default: Tau | None, leaves: Sequence[Leaf] = ()) -> Held:
    """The bounds of the outputs that are these values of a plan, and of the inputs that it writes (`leaves`)."""
    if not plan.rules.tau:
        return Held(default)
    g = plan.graph
    taus = {
        v: plan.rules.tau_of((g.user[u] for u in group.users), default)
        for group in plan.groups
        for v in group.outputs
    }
    found = {f"output {i}": taus.get(v, default) for i, v in enumerate(values)}
    places = dict(zip(g.input_ids, leaves, strict=False))
    for m in g.mutations:
        if m.target in places:
            found[mutated(places[m.target])] = taus.get(m.source, default)
    return Held(default, found)
