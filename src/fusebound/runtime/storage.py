"""Where a plan's values live: straight in an input, in a buffer until the last reader, or as a view made again."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fusebound.analysis.alias import is_view
from fusebound.analysis.raising import may_raise
from fusebound.capture.replay import is_alias
from fusebound.codegen.build import Kernel
from fusebound.ir.graph import Graph, UserOp
from fusebound.ir.ops import OPS
from fusebound.plan.plan import Group, Plan


def written_directly(
    graph: Graph, plan: Plan, kernels: Mapping[str, Kernel], partly: Collection[str]
) -> dict[str, str]:
    """Mutations that a kernel writes straight into their input, as target by value: the last step that touches its
    memory. Those in `partly` write some elements alone: a kernel that stores others as well writes none of them so.

    A kernel that may raise writes into none, nor does one before a step that may and that the user has before the
    write: eager raises before it writes.
    """
    chosen: dict[str, str] = {}
    place = {u.name: i for i, u in enumerate(graph.user_ops)}
    for i, group in enumerate(plan.groups):
        if group.id not in kernels or kernels[group.id].flags:
            continue
        rest = plan.groups[i + 1 :]
        later = {v for g in rest for v in g.inputs}
        first = min((place[u] for g in rest for u in _raising(graph, g, kernels)), default=len(place))
        for value, target in kernels[group.id].in_place.items():
            touched = _views_of(graph, target)
            elsewhere = touched & (later | graph.escaping)
            early = first < place[graph.producer[value].user]
            only = touched & set(group.inputs) <= {target}
            whole = value in partly and value not in kernels[group.id].partial
            if only and not early and not elsewhere and not whole:
                chosen[value] = target
    return chosen


def _raising(graph: Graph, group: Group, kernels: Mapping[str, Kernel]) -> list[str]:
    """The operators of a group that may refuse their data."""
    if group.id in kernels and not kernels[group.id].flags:
        return []
    return [u for u in group.users if any(may_raise(graph, n) for n in graph.members[u])]


def last_reads(graph: Graph, plan: Plan) -> list[list[str]]:
    """Values whose last reader is each group."""
    keep = set(graph.outputs) | graph.escaping | set(graph.input_ids)
    last = {v: i for i, group in enumerate(plan.groups) for v in (*group.inputs, *group.outputs)}
    drops: list[list[str]] = [[] for _ in plan.groups]
    for v, i in last.items():
        if v not in keep:
            drops[i].append(v)
    return drops


def lost_views(graph: Graph, plan: Plan) -> list[UserOp]:
    """Views to be made again at the end: of what inputs become, to show the inputs' own memory; and of other results,
    where a kernel stored the view as memory of its own."""
    sources = {m.source for m in graph.mutations}
    inside = {u for g in plan.groups if g.is_kernel for u in g.users}
    found: set[str] = set()
    for v in set(graph.outputs) - sources:
        chain: list[str] = []
        while (n := graph.producer.get(v)) and (is_view(graph, u := graph.user[n.user]) or is_alias(u)):
            chain.append(n.user)
            v = graph.members[n.user][0].inputs[0]
            if v in sources or (v in graph.outputs and not inside.isdisjoint(chain)):
                found.update(chain)
                break
    return [u for u in graph.user_ops if u.name in found]


_OWN_MEMORY = ("slice_scatter", "cat", "pad")


def _views_of(graph: Graph, value: str) -> set[str]:
    """A value and everything that may be a view of it: moves but those that make memory of their own, and what the
    framework makes of it."""
    found = {value}
    for n in graph.nodes:
        spec = OPS.get(n.op)
        if (spec is None or (spec.cls == "move" and n.op not in _OWN_MEMORY)) and not found.isdisjoint(
            n.inputs
        ):
            found.update(n.outputs)
    return found
