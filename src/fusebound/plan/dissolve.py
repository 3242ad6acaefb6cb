"""A plan without some of its kernels: what measuring taught, written back into the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fusebound.analysis.alias import is_view
from fusebound.analysis.group import boundary
from fusebound.analysis.roofline import bandwidth, framework_cost
from fusebound.analysis.traffic import level, unfused_bytes
from fusebound.plan.plan import Cut, Dissolved, Group, Plan
from fusebound.target.target import Target


@dataclass(frozen=True, slots=True)
class Measured:
    """Microseconds of one group: as a kernel, and its operators through the framework."""

    fused_us: float
    eager_us: float

    @property
    def loses(self) -> bool:
        return self.fused_us > self.eager_us


def dissolve(plan: Plan, measured: Mapping[str, Measured], target: Target) -> Plan:
    """The plan with the kernels that measured slower than eager run by the framework, each cut with its evidence.

    `measured` is by group id; groups that are not in it, that did not lose, or that a rule demands stay as they are.
    `target` predicts what the operators take now.
    """
    demanded = {
        x.id for x in plan.groups if x.is_kernel and plan.rules.requires(plan.graph.user[u] for u in x.users)
    }
    own = {x.id for x in plan.groups} - demanded
    lost = {i: m for i, m in measured.items() if m.loses and i in own}
    nested = {name: dissolve(p, measured, target) for name, p in plan.nested.items()}
    if any(nested[name] is not p for name, p in plan.nested.items()):
        plan = replace(plan, nested=nested)
    if not lost:
        return plan
    groups: list[Group] = []
    cuts = list(plan.cuts)
    for group in plan.groups:
        if group.id not in lost:
            groups.append(group)
            continue
        groups += _apart(plan, group, target)
        cuts += _cuts(plan, group, lost[group.id], target)
    predicted = round(sum(g.predicted_us for g in groups), 4)
    gap = round(1 - plan.lower_bound_us / predicted, 4) if predicted else 0.0
    gone = tuple(
        Dissolved(x.users, x.nodes, round(m.fused_us, 4), round(m.eager_us, 4))
        for x in plan.groups
        if (m := lost.get(x.id)) is not None
    )
    return replace(
        plan, groups=tuple(groups), cuts=tuple(cuts), predicted_us=predicted, gap=gap,
        dissolved=(*plan.dissolved, *gone),
    )  # fmt: skip


def _apart(plan: Plan, group: Group, target: Target) -> Iterator[Group]:
    """One framework step per operator, in the graph's order."""
    g = plan.graph
    for k, name in enumerate(group.users):
        nodes = tuple(n.id for n in g.members[name])
        inputs, outputs = boundary(g, nodes)
        size = unfused_bytes(g, (name,))
        busy = not is_view(g, g.user[name])
        predicted = round(framework_cost(g, g.user[name], target).total, 4)
        id = f"{group.id}.{k}"
        yield Group(id, "framework", (name,), nodes, inputs, outputs, predicted, size, size, int(busy))


def _cuts(plan: Plan, group: Group, m: Measured, target: Target) -> Iterator[Cut]:
    g = plan.graph
    text = f"measured slower as one kernel: {m.fused_us:.3g} µs against {m.eager_us:.3g} µs"
    seen: set[tuple[str, str]] = set()
    for i in group.nodes:
        n = g.node[i]
        for v in n.inputs:
            p = g.producer.get(v)
            if p is None or p.id not in group.nodes or p.user == n.user or (p.user, v) in seen:
                continue
            seen.add((p.user, v))
            size = 2 * g.values[v].nbytes
            cost = round(size / bandwidth(level(g, v, target), target), 4)
            yield Cut(p.user, n.user, v, "F405", text, size, cost)
