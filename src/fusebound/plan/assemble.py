"""From the groups that a search ends with to a plan: kinds, order, bytes, predictions, cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusebound.analysis.group import boundary, in_order
from fusebound.analysis.liveness import peak_bytes
from fusebound.analysis.roofline import (
    bandwidth,
    busy_users,
    compile_us,
    eager_cost,
    is_composite,
    kernel_cost,
)  # fmt: skip
from fusebound.analysis.space import Space, unify
from fusebound.analysis.traffic import kernel_traffic, level, unfused_bytes, user_traffic
from fusebound.gates.base import Candidate, Facts
from fusebound.gates.decide import judge
from fusebound.gates.policy import check as policy_check
from fusebound.ir.graph import Graph
from fusebound.plan.candidates import Roles, origin
from fusebound.plan.contracted import Contracted
from fusebound.plan.cost import eager_us, lower_bound_us
from fusebound.plan.plan import Cut, Decision, Group, Plan


def assemble(
    g: Graph, facts: Facts, roles: Roles, groups: Contracted, decisions: Sequence[Decision]
) -> Plan:  # fmt: skip
    """Absorb leading views, choose each group's kind, and price the result."""
    absorb_views(g, facts, roles, groups)
    made = tuple(_group(g, facts, groups, i, f"g{k}") for k, i in enumerate(groups.live()))
    predicted = round(sum(x.predicted_us for x in made), 4)
    bound = round(min(lower_bound_us(g, facts.target), predicted), 4)
    gap = round(1 - bound / predicted, 4) if predicted else 0.0
    cuts = tuple(_cuts(g, facts, roles, groups, made, decisions))
    peak = peak_bytes(g, [frozenset(x.nodes) for x in made])
    return Plan(
        g.key, g, facts.policy, facts.numerics, facts.target.name, made, cuts, tuple(decisions), predicted,
        bound, gap, peak, round(eager_us(g, facts.target), 4), facts.tau, facts.expected_calls,
    )  # fmt: skip


def absorb_views(g: Graph, facts: Facts, roles: Roles, groups: Contracted) -> None:
    """Put a view into the one kernel that reads it, last views first, where the kernel then still has a
    space.
    """
    for u in reversed(g.user_ops):
        if u.name not in roles.views or any(v in g.escaping for v in u.outputs):
            continue
        here = groups.find(groups.index[u.name])
        readers = groups.succ[here]
        if len(groups.users[here]) > 1 or len(readers) != 1:
            continue
        reader = next(iter(readers))
        if len(busy_users(g, groups.nodes[reader])) < 2:
            continue
        if isinstance(unify(g, groups.nodes[here] | groups.nodes[reader]), Space):
            groups.merge({here, reader})


def _group(g: Graph, facts: Facts, groups: Contracted, i: int, id: str) -> Group:
    nodes = groups.nodes[i]
    users = groups.names(i)
    busy = busy_users(g, nodes)
    inputs, outputs = boundary(g, nodes)
    kernel = len(busy) > 1 or _worth_a_kernel(g, facts, nodes)
    if kernel:
        us = kernel_cost(g, nodes, facts.target, unify(g, nodes)).total
        after = kernel_traffic(g, nodes).total
    else:
        us = sum(eager_cost(g, u, facts.target).total for u in busy)
        after = sum(user_traffic(g, u).total for u in busy)
    return Group(
        id, "kernel" if kernel else "framework", users, tuple(n.id for n in in_order(g, nodes)), inputs,
        outputs, round(us, 4), unfused_bytes(g, users), after, len(busy),
    )  # fmt: skip


def _worth_a_kernel(g: Graph, facts: Facts, nodes: frozenset[str]) -> bool:
    """Whether a lone composite runs faster as a generated kernel than through the framework."""
    busy = busy_users(g, nodes)
    if (
        len(busy) != 1
        or not is_composite(g, busy[0])
        or facts.policy in ("none", "textbook", "textbook-strict")
    ):
        return False
    space = unify(g, nodes)
    if not isinstance(space, Space):
        return False
    one = Candidate(g, nodes, frozenset(), acyclic=True)
    if policy_check(one, facts) is not None or (facts.numerics == "eager" and space.reduced):
        return False
    t = facts.target
    after = kernel_cost(g, nodes, t, space).total + compile_us(nodes, t, facts.expected_calls)
    return after < eager_cost(g, busy[0], t).total


def _cuts(
    g: Graph, facts: Facts, roles: Roles, groups: Contracted, made: Sequence[Group],
    decisions: Sequence[Decision],
) -> Iterator[Cut]:  # fmt: skip
    """One cut for every value that one group computes and another reads, views looked through."""
    last = {(d.a, d.b): d for d in decisions if not d.accepted}
    for group in made:
        seen: set[str] = set()
        for v in group.inputs:
            base, maker = origin(g, roles, v)
            reader = next(n.user for n in g.consumers[v] if n.id in group.nodes)
            if maker is None or maker.name in group.users or base in seen or reader in roles.views:
                continue
            seen.add(base)
            code, message = _reason(
                g, facts, roles, groups, maker.name, reader, last.get((maker.name, reader))
            )
            yield Cut(maker.name, reader, base, code, message, *_stake(g, facts, group, base))


def _stake(g: Graph, facts: Facts, group: Group, value: str) -> tuple[int, float]:
    """Bytes that a merge would save at most, and the time of writing and reading the value."""
    size = g.values[value].nbytes
    inside = frozenset(group.nodes)
    kept = value in g.escaping or any(c.id not in inside for c in g.consumers[value])
    rate = bandwidth(level(g, value, facts.target), facts.target)
    return size * (1 if kept else 2), round(2 * size / rate, 4)


def _reason(
    g: Graph, facts: Facts, roles: Roles, groups: Contracted, a: str, b: str, old: Decision | None
) -> tuple[str, str]:  # fmt: skip
    """Why two operators in different groups are not one kernel: the boundary, the refusal on record, or a
    fresh one.
    """
    for u in (a, b):
        if u in roles.boundaries:
            return roles.boundaries[u], f"{g.user[u].label} runs through the framework"
    if facts.policy in ("none", "textbook", "textbook-strict"):
        return "F900", f"policy {facts.policy} does not fuse {g.user[a].label} with {g.user[b].label}"
    i, j = (groups.find(groups.index[u]) for u in (a, b))
    owner = groups.owner(k for k in groups.users if k not in (i, j))
    veto = judge(Candidate(g, groups.nodes[i], groups.nodes[j], owner), facts).first
    if veto is None and old is not None:
        veto = old.judgement.first
    return (veto.code, veto.message) if veto is not None else ("F401", "no order of merges reaches this one")
