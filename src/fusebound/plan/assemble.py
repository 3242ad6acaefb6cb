"""From the groups that a search ends with to a plan: kinds, order, bytes, predictions, cuts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusebound.analysis.alias import is_free, is_move, is_write_back
from fusebound.analysis.draws import counted
from fusebound.analysis.group import boundary, in_order
from fusebound.analysis.liveness import peak_bytes
from fusebound.analysis.roofline import (
    bandwidth,
    busy_users,
    compile_us,
    framework_cost,
    is_composite,
    kernel_cost,
)
from fusebound.analysis.space import Space, unify
from fusebound.analysis.traffic import kernel_traffic, level, unfused_bytes, user_traffic
from fusebound.gates.base import Candidate, Facts
from fusebound.gates.dependence import boundary_text
from fusebound.gates.gain import MODEL_ERROR
from fusebound.ir.control import control
from fusebound.ir.graph import Graph, UserOp
from fusebound.plan.candidates import Roles, origin, referents, with_views
from fusebound.plan.contracted import Contracted
from fusebound.plan.cost import eager_us, lower_bound_us
from fusebound.plan.plan import Cut, Decision, Group, Plan
from fusebound.plan.simulated import judge_simulated

CLEARLY = 0.5
"""A kernel instead of the framework's own loop must be predicted to take half the time."""

_OWN_RULES = ("none", "textbook", "textbook-strict")
"""Policies whose refusals are not the gates'."""
_ROUNDING = 1e-4
"""µs by which rounding a group's time may put it below the bound; a bound that is higher is wrong, and shows as a
negative gap."""


@dataclass(slots=True)
class Assembly:
    """What a plan is made of; `plan` absorbs leading views, chooses kinds, and prices the result."""

    g: Graph
    facts: Facts
    roles: Roles
    groups: Contracted
    nested: Mapping[str, Plan]
    prefix: str

    def plan(self, decisions: Sequence[Decision]) -> Plan:
        """The finished plan, with the record of how it came about."""
        self._absorb_views()
        g, facts = self.g, self.facts
        made = tuple(self._group(i, f"{self.prefix}g{k}") for k, i in enumerate(self.groups.live()))
        predicted = round(sum(x.predicted_us for x in made), 4)
        bound = lower_bound_us(g, facts.target)
        bound = predicted if 0 < bound - predicted < _ROUNDING * len(made) else round(bound, 4)
        gap = round(1 - bound / predicted, 4) if predicted else 0.0
        cuts = tuple(self._cuts(made, decisions))
        peak = peak_bytes(g, [frozenset(x.nodes) for x in made])
        return Plan(
            graph_key=g.key,
            graph=g,
            policy=facts.policy,
            numerics=facts.numerics,
            target=facts.target.name,
            groups=made,
            cuts=cuts,
            decisions=tuple(decisions),
            predicted_us=predicted,
            lower_bound_us=bound,
            gap=gap,
            peak_bytes=peak,
            eager_us=round(eager_us(g, facts.target), 4),
            tau=facts.tau,
            expected_calls=facts.expected_calls,
            rules=facts.rules,
            nested=self.nested,
        )

    def _absorb_views(self) -> None:
        """Put a view into the one kernel that reads it, last views first, if it fits."""
        for u in reversed(self.g.user_ops):
            if u.name not in self.roles.views or any(v in self.g.escaping for v in u.outputs):
                continue
            here = self.groups.find(self.groups.index[u.name])
            readers = self.groups.succ[here]
            if len(self.groups.users[here]) > 1 or len(readers) != 1:
                continue
            reader = next(iter(readers))
            nodes = self.groups.nodes[reader]
            if not referents(self.g, u.name) <= {self.g.node[n].user for n in nodes}:
                continue
            if len(busy_users(self.g, nodes)) < 2:
                continue
            if isinstance(unify(self.g, self.groups.nodes[here] | nodes), Space):
                self.groups.merge({here, reader})

    def _group(self, i: int, id: str) -> Group:
        g, nodes, target = self.g, self.groups.nodes[i], self.facts.target
        users = self.groups.names(i)
        busy = busy_users(g, nodes)
        inputs, outputs = boundary(g, nodes)
        kernel = len(busy) > 1 or self._draws(busy, outputs) or self._worth_a_kernel(nodes)
        if kernel:
            us = kernel_cost(g, nodes, target, unify(g, nodes)).total
            after = kernel_traffic(g, nodes).total
        else:
            us = sum(self._framework_us(u) for u in busy)
            after = sum(user_traffic(g, u).total for u in busy)
        return Group(
            id, "kernel" if kernel else "framework", users, tuple(n.id for n in in_order(g, nodes)), inputs,
            outputs, round(us, 4), unfused_bytes(g, users), after, sum(not is_write_back(g, u) for u in busy),
        )  # fmt: skip

    def _draws(self, busy: Sequence[UserOp], outputs: Sequence[str]) -> bool:
        """Whether a lone operator draws by counter: only a kernel does, under any policy, so that the numbers do not
        depend on the plan."""
        eager = self.facts.numerics == "eager"
        return not eager and bool(outputs) and any(counted(self.g, u) for u in busy)

    def _framework_us(self, user: UserOp) -> float:
        """Predicted time of an operator through the framework; of control flow, with its subgraphs as planned."""
        c = control(self.g, user)
        if c is None:
            return framework_cost(self.g, user, self.facts.target).total
        return self.facts.target.framework_us + c.weigh(*(self.nested[n].predicted_us for n in c.subgraphs))

    def _worth_a_kernel(self, nodes: frozenset[str]) -> bool:
        """Whether a lone operator runs faster as a generated kernel than through the framework.

        A composite may be slower by what the model may be wrong by, as it is measured: the framework's own kernels are
        further from the limit than the model says. A single primitive, which eager runs as one loop too, must gain
        clearly (its result in memory that is not fresh); a copy is never worth one.
        """
        g, facts, t = self.g, self.facts, self.facts.target
        busy = busy_users(g, nodes)
        if len(busy) != 1 or is_move(g, busy[0]) or facts.policy in _OWN_RULES:
            return False
        alone = Candidate(g, nodes, frozenset(), acyclic=True)
        j = judge_simulated(alone, facts)
        if not (j.dependence and j.precision and j.resources and j.override is None):
            return False
        after, before = kernel_cost(g, nodes, t, alone.space).total, framework_cost(g, busy[0], t).total
        compiling = compile_us(1, len(nodes), t, facts.expected_calls)
        if not is_composite(g, busy[0]):
            return after + compiling < CLEARLY * before
        doubt = MODEL_ERROR * before if t.kind == "cpu" else 0.0
        return after + compiling < before + doubt

    def _cuts(self, made: Sequence[Group], decisions: Sequence[Decision]) -> Iterator[Cut]:
        """One cut for every value that one group computes and another reads, views looked through."""
        last = {(d.a, d.b): d for d in decisions if not d.accepted}
        for group in made:
            seen: set[str] = set()
            inside = frozenset(group.nodes)
            for v in group.inputs:
                base, maker = origin(self.g, self.roles, v)
                reader = next(n.user for n in self.g.consumers[v] if n.id in inside)
                if (
                    maker is None
                    or maker.name in group.users
                    or base in seen
                    or is_free(self.g, self.g.user[reader])
                ):
                    continue
                seen.add(base)
                code, message = self._reason(maker.name, reader, last.get((maker.name, reader)))
                maker_nodes = self.groups.nodes[self.groups.find(self.groups.index[maker.name])]
                yield Cut(maker.name, reader, base, code, message, *self._stake(inside | maker_nodes, base))

    def _stake(self, merged: frozenset[str], value: str) -> tuple[int, float]:
        """Bytes that merging the two groups would save at most, and the time that moving them takes."""
        g, target = self.g, self.facts.target
        saved = g.values[value].nbytes * (1 if self._needed(value, merged) else 2)
        return saved, round(saved / bandwidth(level(g, value, target), target), 4)

    def _needed(self, value: str, merged: frozenset[str]) -> bool:
        """Whether anybody outside reads a value, views looked through."""
        g = self.g
        outside = (c for c in g.consumers[value] if c.id not in merged)
        return value in g.escaping or any(
            c.user not in self.roles.views or any(self._needed(v, merged) for v in c.outputs) for c in outside
        )

    def _reason(self, a: str, b: str, old: Decision | None) -> tuple[str, str]:
        """Why two operators in different groups are not one kernel.

        The boundary between them, the refusal that merging their groups would meet, or the one on record.
        """
        g, facts = self.g, self.facts
        for u in (a, b):
            if u in self.roles.boundaries:
                code = self.roles.boundaries[u]
                return code, boundary_text(g, g.user[u], code)
        if facts.policy in _OWN_RULES:
            return "F900", self._own_reason(a, b)
        i, j = (self.groups.find(self.groups.index[u]) for u in (a, b))
        owner = self.groups.owner(self.groups.users)
        candidate = with_views(g, self.roles, self.groups.nodes[i], self.groups.nodes[j], owner)
        veto = judge_simulated(candidate, facts).first
        if veto is None and old is not None:
            veto = old.judgement.first
        return (veto.code, veto.message) if veto is not None else ("F401", "no order of merges reaches it")

    def _own_reason(self, a: str, b: str) -> str:
        """Which of the textbook's checks refuse a pair; `none` refuses everything."""
        g, policy = self.g, self.facts.policy
        pair = f"{g.user[a].label} and {g.user[b].label}"
        if policy == "none":
            return f"policy none fuses nothing, so not {pair}"
        from fusebound.textbook.policy import pair_allowed

        _, checks = pair_allowed(g, a, b, policy == "textbook-strict")
        failed = ", ".join(k for k, ok in checks.items() if not ok)
        return f"policy {policy} refuses {pair}: {failed or 'another member of their groups does not fit'}"
