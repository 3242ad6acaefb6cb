"""The textbook's rules as policies on real graphs: `textbook` and `textbook-strict`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations

from fusebound.analysis.alias import is_view
from fusebound.ir.graph import Graph, Node, UserOp, refs
from fusebound.ir.ops import OPS
from fusebound.target.target import Target
from fusebound.textbook.checker import FusionBoundaryChecker
from fusebound.textbook.operator import Operator


def pair_allowed(
    graph: Graph, a_user_op: str, b_user_op: str, strict: bool, inside: Collection[str] = ()
) -> tuple[bool, dict[str, bool]]:
    """May these two operators of a graph fuse, and which checks say so? `a` comes first in the graph.

    Beside dep, prec, res and branch there are `class` (both elementwise or reducing as a whole), `edge` (b
    reads what a writes), `gain` and, for `textbook-strict`, `nofuse`. `inside` names operators that would
    share the kernel, so that they do not count as coming between the two. UsageError for an unknown operator.
    """
    checks = Rules(graph, strict).pair(a_user_op, b_user_op, inside)
    return all(checks.values()), checks


def groups(graph: Graph, strict: bool, target: Target) -> list[tuple[str, ...]]:
    """Every operator of the graph, in groups by name; each group, and the list by first members, in order.

    Groups grow over RAW edges in topological order. Two merge if the pair test holds for every pair of
    members (edge and gain are asked of the edge that joins them), registers summed over all members are
    within the limit, and the estimated gain on `target` is positive.
    """
    rules = Rules(graph, strict)
    group = {u.name: (u.name,) for u in graph.user_ops}
    for a, b in rules.edges():
        if group[a] is group[b]:
            continue
        merged = tuple(sorted((*group[a], *group[b]), key=rules.order.__getitem__))
        if rules.group_allowed(merged) and rules.gain_us(a, b, target) > 0:
            group |= dict.fromkeys(merged, merged)
    return list(dict.fromkeys(group.values()))


class Rules:
    """The textbook's rules over the user's operators of one graph (a composite is one operator)."""

    def __init__(self, graph: Graph, strict: bool) -> None:
        self.graph, self.strict = graph, strict
        self.order = {u.name: k for k, u in enumerate(graph.user_ops)}
        self.checker = FusionBoundaryChecker()
        self._root: dict[str, str] = {}
        self._writes: dict[str, set[int]] = {}
        self._owner = {v: n.user for n in graph.nodes for v in n.outputs}
        for u in graph.user_ops:
            self.checker.add_op(self._operator(u))
            self._note_storage(u)

    def edges(self) -> Iterator[tuple[str, str]]:
        """RAW edges (producer, consumer), by consumer, then by operand."""
        for b in self.checker.ops:
            for a in dict.fromkeys(self._owner[v] for v in b.inputs if v in self._owner):
                yield a, b.name

    def pair(self, a: str, b: str, inside: Collection[str] = ()) -> dict[str, bool]:
        """Every check of one pair."""
        edge = self.checker.edge(a, b)
        checks = self.members_checks(a, b, inside)
        return checks | {"edge": edge, "gain": edge and self._between(a, b) > 0}

    def members_checks(self, a: str, b: str, inside: Collection[str]) -> dict[str, bool]:
        """The checks that every pair of members must pass, edge or not."""
        checks = self.checker.check(a, b, inside)
        checks["dep"] = checks["dep"] and not self._clobbered(a, b, inside)
        checks["class"] = self._fusible(a) and self._fusible(b)
        if self.strict:
            checks["nofuse"] = not (self.checker.no_fuse(a) or self.checker.no_fuse(b))
        return checks

    def group_allowed(self, members: tuple[str, ...]) -> bool:
        """The pair test for every pair of members, in order, and registers summed over all of them."""
        by_name = self.checker.ops
        if sum(by_name[self.order[m]].regs() for m in members) > self.checker.register_limit:
            return False
        return all(all(self.members_checks(a, b, members).values()) for a, b in combinations(members, 2))

    def gain_us(self, a: str, b: str, target: Target) -> float:
        """ΔT = T_mem − T_overlap − T_spill of an edge, in µs, as taught.

        Two operators of a chain never run side by side, and the register rule admits no spill, so both
        subtrahends are 0; T_mem is the write of what lies between, once, at the target's bandwidth.
        """
        return self._between(a, b) / target.dram_bandwidth

    def _between(self, a: str, b: str) -> int:
        """Bytes that a writes and b reads."""
        first, second = (self.checker.ops[self.order[x]] for x in (a, b))
        return sum(self.graph.values[v].nbytes for v in first.outputs if v in second.inputs)

    def _operator(self, u: UserOp) -> Operator:
        nodes = self.graph.members[u.name]
        own = {v for n in nodes for v in n.outputs}
        reads = [v for n in nodes for v in n.inputs if v not in own] or refs((u.args, u.kwargs))
        read_outside = (v for v in own if any(n.user != u.name for n in self.graph.consumers[v]))
        writes = [v for v in dict.fromkeys((*u.outputs, *sorted(read_outside))) if v in own]
        return Operator(
            u.name, "reduce" if _reduces(u, nodes) else "elementwise",
            tuple(dict.fromkeys(reads)), tuple(writes), uses_branch=u.why == "F603", dynamic=u.why == "F602",
        )  # fmt: skip

    def _fusible(self, name: str) -> bool:
        """Moves, gathers, contractions, random and opaque operators never fuse."""
        nodes = self.graph.members[name]
        parts = {OPS[n.op].cls if n.op in OPS else "opaque" for n in nodes}
        computes = parts & {"pointwise", "reduce"}
        return (
            self.graph.user[name].kind in ("pointwise", "reduce")
            and bool(computes)
            and parts <= computes | {"move"}
        )

    def _note_storage(self, u: UserOp) -> None:
        """Which storage the results of `u` live in (views share it), and which it overwrites."""
        nodes = self.graph.members[u.name]
        if is_view(self.graph, u):
            for v in u.outputs:
                self._root[v] = self._storage(nodes[0].inputs[0])
        targets = refs(u.args[:1]) if _in_place(u) else ()
        written = dict(zip(u.outputs, targets, strict=False))
        written |= {m.source: m.target for m in self.graph.mutations if self._owner.get(m.source) == u.name}
        for source, target in written.items():
            self._root[source] = self._storage(target)
            self._writes.setdefault(self._storage(target), set()).add(self.order[u.name])

    def _storage(self, v: str) -> str:
        return self._root.get(v, v)

    def _clobbered(self, a: str, b: str, inside: Collection[str]) -> bool:
        """Does an operator between the two write, in place, a tensor that both read?"""
        first, second = (self.checker.ops[self.order[x]] for x in (a, b))
        shared = set(map(self._storage, first.inputs)) & set(map(self._storage, second.inputs))
        between = {k for s in shared for k in self._writes.get(s, ()) if self.order[a] < k < self.order[b]}
        return any(self.checker.ops[k].name not in inside for k in between)


def _reduces(u: UserOp, nodes: tuple[Node, ...]) -> bool:
    return u.kind == "reduce" or any(n.op in OPS and OPS[n.op].cls == "reduce" for n in nodes)


def _in_place(u: UserOp) -> bool:
    """`aten.add_.Tensor` as the user wrote it; `aten.__and__.Tensor` is not in place."""
    name = u.written.split(".")[1] if u.written.count(".") else ""
    return name.endswith("_") and not name.endswith("__")
