"""Plans for trying something out: nobody searched for them, and they predict nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from fusebound.analysis.group import boundary
from fusebound.analysis.tau import Tau
from fusebound.ir.graph import Graph
from fusebound.plan.plan import Group, Plan


def one_kernel(graph: Graph, *, numerics: str = "accurate", tau: Tau | None = None) -> Plan:
    """The whole graph as one kernel, whatever the gates say; building it fails where no kernel can hold it."""
    group = _group(graph, "g0", "kernel", [u.name for u in graph.user_ops])
    return Plan(
        graph_key=graph.key, graph=graph, policy="none", numerics=numerics, target="host", groups=(group,), cuts=(),
        decisions=(), predicted_us=0.0, lower_bound_us=0.0, gap=0.0, peak_bytes=0, eager_us=0.0, tau=tau,
    )  # fmt: skip


def only(plan: Plan, kernels: Collection[str]) -> Plan:
    """The plan with these of its kernels, by group id; the operators of all others run through the framework."""
    return replace(plan, groups=tuple(_only(plan, kernels)), cuts=())


def _only(plan: Plan, kernels: Collection[str]) -> Iterator[Group]:
    for group in plan.groups:
        if not group.is_kernel or group.id in kernels:
            yield group
        else:
            parts = enumerate(group.users)
            yield from (_group(plan.graph, f"{group.id}.{k}", "framework", [u]) for k, u in parts)


def _group(graph: Graph, id: str, kind: str, users: Sequence[str]) -> Group:
    nodes = tuple(n.id for u in users for n in graph.members[u])
    inputs, outputs = boundary(graph, nodes)
    return Group(id, kind, tuple(users), nodes, inputs, outputs, 0.0, 0, 0, len(users))
