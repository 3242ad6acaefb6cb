"""Exact bytes: what a kernel reads and writes once each, what its operators move when each runs alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from fusebound.analysis.access import demand, elements, ints
from fusebound.analysis.alias import is_view
from fusebound.analysis.group import boundary, in_order
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

    @property
    def strided_bytes(self) -> int:
        return sum(self.reads[v] for v in self.strided)


def kernel_traffic(g: Graph, nodes: Collection[str]) -> Traffic:
    """The traffic of one kernel made of `nodes`."""
    inside = frozenset(nodes)
    _, outputs = boundary(g, inside)
    reads: dict[str, int] = {}
    for v, regions in demand(g, inside).items():
        value = g.values[v]
        size = value.type.itemsize
        reads[v] = min(elements(value, regions), _gathered(g, inside, v)) * size
    writes = {v: g.values[v].numel * g.values[v].type.itemsize for v in outputs}
    hidden = sum(
        g.values[v].numel * g.values[v].type.itemsize
        for n in in_order(g, inside)
        for v in n.outputs
        if v not in writes and not _free(n.op)
    )
    return Traffic(reads, writes, _strided(g, inside, reads), hidden)


def user_traffic(g: Graph, user: UserOp) -> Traffic:
    """The traffic of one user operator run alone by the framework; a view moves nothing."""
    if is_view(g, user):
        return Traffic({}, {}, frozenset(), 0)
    return kernel_traffic(g, [n.id for n in g.members[user.name]])


def unfused_bytes(g: Graph, users: Iterable[str]) -> int:
    """Bytes moved when each of these user operators runs alone."""
    return sum(user_traffic(g, g.user[u]).total for u in users)


def level_of(footprint: int, target: Target) -> str:
    """The nearest memory that holds a working set: "l2", "l3" or "dram"."""
    if footprint <= target.l2_bytes:
        return "l2"
    return "l3" if target.l3_bytes and footprint <= target.l3_bytes else "dram"


def by_level(traffic: Traffic, target: Target) -> dict[str, int]:
    """External bytes by the memory level that serves them, and `register`: bytes of reuse that stay on chip."""
    levels = {"register": traffic.inside, "l2": 0, "l3": 0, "dram": 0}
    levels[level_of(traffic.total, target)] += traffic.total
    return levels


def _free(op: str) -> bool:
    spec = spec_of(op)
    return op in ("const", "iota") or (spec is not None and spec.cls == "move" and spec.name != "cat")


def _gathered(g: Graph, inside: frozenset[str], v: str) -> int:
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
        if (moving and hint(value.strides[moving[-1]]) > 1) or (moving and any(_turned(g, n.id, moving[-1]) for n in g.consumers[v] if n.id in inside)):
            found.add(v)
    return frozenset(found)


def _turned(g: Graph, node: str, axis: int) -> bool:
    n = g.node[node]
    if n.op != "permute":
        return False
    perm = [p for p in ints(n.attr("perm")) if hint(g.values[n.inputs[0]].shape[p]) > 1]
    return bool(perm) and perm[-1] != axis
