"""Exact bytes: what a kernel reads and writes once each, what its operators move when each runs alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from fusebound.analysis.access import changed, demand, elements, ints
from fusebound.analysis.alias import is_free, is_view, is_write_back
from fusebound.analysis.group import boundary, in_order
from fusebound.analysis.memo import per_graph
from fusebound.ir.graph import Graph, UserOp, hint
from fusebound.ir.ops import spec_of
from fusebound.target.target import Target


@dataclass(frozen=True)
class Traffic:
    """Bytes of each external value that a kernel reads and writes, each counted once.

    `strided` holds those read along an axis that is not their innermost one; `inside` the bytes of
    intermediates that never reach memory.
    """

    reads: dict[str, int]
    writes: dict[str, int]
    strided: frozenset[str]
    inside: int

    @cached_property
    def read_bytes(self) -> int:
        return sum(self.reads.values())

    @cached_property
    def write_bytes(self) -> int:
        return sum(self.writes.values())

    @property
    def total(self) -> int:
        return self.read_bytes + self.write_bytes


def kernel_traffic(g: Graph, nodes: Collection[str]) -> Traffic:
    """The traffic of one kernel made of `nodes`."""
    inside = frozenset(nodes)
    _, outputs = boundary(g, inside)
    reads: dict[str, int] = {}
    for v, regions in demand(g, inside).items():
        value = g.values[v]
        size = value.type.itemsize
        reads[v] = min(elements(value, regions), gathered(g, inside, v)) * size
    writes = {v: elements(g.values[v], changed(g, v)) * g.values[v].type.itemsize for v in outputs}
    hidden = sum(
        g.values[v].numel * g.values[v].type.itemsize
        for n in in_order(g, inside)
        for v in n.outputs
        if v not in writes and not _free(n.op)
    )
    return Traffic(reads, writes, _strided(g, inside, reads), hidden)


def user_traffic(g: Graph, user: UserOp) -> Traffic:
    """The traffic of one user operator in eager; a view or a question about sizes moves nothing, nor does the second
    half of an in-place operator on a view."""
    return _user_traffic(g, user.name)


@per_graph
def _user_traffic(g: Graph, name: str) -> Traffic:
    if is_free(g, g.user[name]) or is_write_back(g, g.user[name]):
        return Traffic({}, {}, frozenset(), 0)
    return kernel_traffic(g, [n.id for n in g.members[name]])


def own_nodes(g: Graph, nodes: frozenset[str]) -> frozenset[str]:
    """`nodes` without the views that a kernel of them would store for others, where the framework gives them free.

    A view goes that others read and that nothing inside reads or that reads from outside; one between two operators
    stays, since the kernel stores it instead of its operand.
    """
    views = [g.node[i] for i in nodes if is_view(g, g.user[g.node[i].user])]
    while views:
        read, stored = boundary(g, nodes)
        gone = {
            n.id
            for n in views
            if n.out in stored and (n.inputs[0] in read or not any(c.id in nodes for c in g.consumers[n.out]))
        }
        if not gone:
            break
        nodes -= gone
        views = [n for n in views if n.id in nodes]
    return nodes


def apart_bytes(g: Graph, nodes: frozenset[str]) -> int:
    """Bytes that a group moves unmerged: what several views show of one value counts once."""
    return kernel_traffic(g, own_nodes(g, nodes)).total


def unfused_bytes(g: Graph, users: Iterable[str]) -> int:
    """Bytes moved when each of these user operators runs alone."""
    return sum(user_traffic(g, g.user[u]).total for u in users)


def level_of(footprint: int, target: Target) -> str:
    """The nearest memory that holds a working set: "l2", "l3" or "dram"."""
    if footprint <= target.l2_bytes:
        return "l2"
    return "l3" if target.l3_bytes and footprint <= target.l3_bytes else "dram"


@per_graph
def level(g: Graph, value: str, target: Target) -> str:
    """The memory that serves a value whichever kernel reads it.

    Inputs and results of the graph stay where everything that a call must touch fits; an intermediate value
    stays where its producer's whole traffic fits, because it is read soon after.
    """
    maker = g.producer.get(value)
    if maker is None or value in g.escaping:
        return level_of(_touched(g), target)
    user = g.user[maker.user]
    if is_view(g, user) or is_write_back(g, user):
        return level(g, maker.inputs[0], target)
    return level_of(user_traffic(g, user).total, target)


@per_graph
def _touched(g: Graph) -> int:
    """Bytes of the graph's inputs and results."""
    ends = {*g.input_ids, *g.escaping}
    return sum(g.values[v].nbytes for v in ends if v in g.values)


def by_level(g: Graph, traffic: Traffic, target: Target) -> dict[str, int]:
    """External bytes by the memory level that serves them; `register` holds the reuse that stays on chip."""
    levels = {"register": traffic.inside, "l2": 0, "l3": 0, "dram": 0}
    for side in (traffic.reads, traffic.writes):
        for v, size in side.items():
            levels[level(g, v, target)] += size
    return levels


def _free(op: str) -> bool:
    spec = spec_of(op)
    return op in ("const", "iota") or (spec is not None and spec.cls == "move" and spec.name != "cat")


def gathered(g: Graph, inside: frozenset[str], v: str) -> int:
    """An upper bound of the elements of `v` read when all its readers inside are gathers."""
    total = 0
    for n in g.consumers[v]:
        if n.id not in inside:
            continue
        spec = spec_of(n.op)
        if spec is None or spec.cls != "gather" or n.inputs[0] != v:
            return g.values[v].numel
        total += g.values[n.out].numel
    return total


def _strided(g: Graph, inside: frozenset[str], reads: Iterable[str]) -> frozenset[str]:
    """External values whose innermost axis of stride 1 is not the innermost axis of their readers."""
    found: set[str] = set()
    for v in reads:
        value = g.values[v]
        moving = [i for i, d in enumerate(value.shape) if hint(d) > 1]
        if (moving and hint(value.strides[moving[-1]]) > 1) or (
            moving and any(_turned(g, n.id, moving[-1]) for n in g.consumers[v] if n.id in inside)
        ):
            found.add(v)
    return frozenset(found)


def _turned(g: Graph, node: str, axis: int) -> bool:
    n = g.node[node]
    if n.op != "permute":
        return False
    perm = [p for p in ints(n.attr("perm")) if hint(g.values[n.inputs[0]].shape[p]) > 1]
    return bool(perm) and perm[-1] != axis
