"""Which groups may meet: producers with their consumers, through views, and readers of one value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from fusebound.analysis.alias import is_view
from fusebound.analysis.group import boundary
from fusebound.analysis.memo import per_graph
from fusebound.gates.base import Candidate
from fusebound.gates.dependence import boundary_code
from fusebound.ir.graph import Graph, UserOp, refs


@dataclass(frozen=True, slots=True)
class Edge:
    """User operator `a` feeds `b` with `value`, or both read it (`sibling`); `bytes` is the size of the value."""

    a: str
    b: str
    value: str
    bytes: int
    sibling: bool = False


@dataclass(frozen=True)
class Roles:
    """Which user operators are views, which are boundaries (with their code); the others can be fused."""

    views: frozenset[str]
    boundaries: dict[str, str]

    def fusable(self, user: str) -> bool:
        return user not in self.views and user not in self.boundaries


def roles(g: Graph, numerics: str = "accurate") -> Roles:
    """Classify the user operators of a graph."""
    boundaries = {u.name: code for u in g.user_ops if (code := boundary_code(g, u, numerics))}
    views = frozenset(u.name for u in g.user_ops if u.name not in boundaries and is_view(g, u))
    return Roles(views, boundaries)


def origin(g: Graph, r: Roles, value: str) -> tuple[str, UserOp | None]:
    """The value behind a chain of views and the operator that computed it (None for a graph input)."""
    while (p := g.producer.get(value)) is not None and p.user in r.views:
        value = _source(g, p.user)
    return value, g.user[p.user] if p is not None else None


def _source(g: Graph, view: str) -> str:
    made = {v for n in g.members[view] for v in n.outputs}
    return next(v for n in g.members[view] for v in n.inputs if v not in made)


def raw_edges(g: Graph, r: Roles) -> Iterator[Edge]:
    """Every value that one fusable operator computes and another reads, views looked through."""
    seen: set[tuple[str, str]] = set()
    for n in g.nodes:
        if not r.fusable(n.user):
            continue
        for v in n.inputs:
            base, maker = origin(g, r, v)
            if (
                maker is None
                or maker.name == n.user
                or not r.fusable(maker.name)
                or (maker.name, n.user) in seen
            ):
                continue
            seen.add((maker.name, n.user))
            yield Edge(maker.name, n.user, v, g.values[base].nbytes)


def sibling_edges(g: Graph, r: Roles) -> Iterator[Edge]:
    """Neighbouring fusable readers of one value, in graph order: two by two, so that many readers stay linear."""
    readers: dict[str, list[str]] = {}
    for n in g.nodes:
        if not r.fusable(n.user):
            continue
        for v in n.inputs:
            base, maker = origin(g, r, v)
            if maker is None or maker.name != n.user:
                users = readers.setdefault(base, [])
                if n.user not in users[-1:]:
                    users.append(n.user)
    for v, users in readers.items():
        for a, b in pairwise(users):
            if a != b and g.values[v].numel > 1:
                yield Edge(a, b, v, g.values[v].nbytes, sibling=True)


def views_between(g: Graph, r: Roles, first: frozenset[str], second: frozenset[str]) -> frozenset[str]:
    """The views (user operators) that belong to the merge of two groups.

    Those through which one reads what the other computes, and those that nobody outside refers to: of its values
    (left out, they would make the kernel store what only they read) and of what both sides read.
    """
    found = _through(g, r, first, second) | _through(g, r, second, first)
    users = {g.node[i].user for i in first | second} | found
    shared = _shared(g, r, first, second)
    while more := {
        v
        for v in shared.union(*(_views_of(g, r, u) for u in users))
        if v not in users and referents(g, v) <= users
    }:
        users |= more
        found |= more
    return found


def _shared(g: Graph, r: Roles, first: frozenset[str], second: frozenset[str]) -> set[str]:
    """The views through which one side reads a value from outside that the other side reads too."""
    a, b = (_origins(g, r, side) for side in (first, second))
    both = a.keys() & b.keys()
    chains = {v for side in (a, b) for base in both for v in side[base]}
    return {v for v in chains if not any(o in g.escaping for o in g.user[v].outputs)}


def _origins(g: Graph, r: Roles, nodes: frozenset[str]) -> dict[str, set[str]]:
    """The values from outside that nodes read, views looked through, with those views."""
    found: dict[str, set[str]] = {}
    for v in boundary(g, nodes)[0]:
        base, _ = origin(g, r, v)
        chain = found.setdefault(base, set())
        while v != base:
            chain.add(g.producer[v].user)
            v = _source(g, g.producer[v].user)
    return found


def _views_of(g: Graph, r: Roles, user: str) -> set[str]:
    """The views that read a result of an operator directly and whose own results do not escape."""
    readers = {n.user for v in g.user[user].outputs for n in g.consumers[v]}
    return {v for v in readers & r.views if not any(o in g.escaping for o in g.user[v].outputs)}


@per_graph
def referents(g: Graph, user: str) -> frozenset[str]:
    """The user operators that name a result of `user` among their arguments, for its data or only for its shape."""
    return frozenset(u for v in g.user[user].outputs for u in _named(g).get(v, ()))


@per_graph
def _named(g: Graph) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for n in g.nodes:
        for v in n.inputs:
            found.setdefault(v, set()).add(n.user)
    for u in g.user_ops:
        for a in (*u.args, *(x for _, x in u.kwargs)):
            for v in refs(a):
                found.setdefault(v, set()).add(u.name)
    return found


def with_views(
    g: Graph, r: Roles, a: frozenset[str], b: frozenset[str], owner: Mapping[str, frozenset[str]] | None
) -> Candidate:
    """The merge of two groups with the views between them, on the side that reads through them.

    `owner` are the groups of all nodes, for the cycle test; None says that there is no cycle.
    """
    views = views_between(g, r, a, b)
    into_b = _through(g, r, a, b)
    one, two = (frozenset(n.id for v in side for n in g.members[v]) for side in (views - into_b, into_b))
    if owner is None:
        return Candidate(g, a | one, b | two, acyclic=True)
    inside = a | b | one | two
    return Candidate(g, a | one, b | two, {n: s for n, s in owner.items() if n not in inside})


def _through(g: Graph, r: Roles, makers: frozenset[str], readers: frozenset[str]) -> frozenset[str]:
    found: set[str] = set()
    for i in readers:
        for v in g.node[i].inputs:
            chain: list[str] = []
            p = g.producer.get(v)
            while p is not None and p.user in r.views and p.id not in readers and p.id not in makers:
                chain.append(p.user)
                p = g.producer.get(_source(g, p.user))
            if p is not None and (p.id in makers or p.id in readers):
                found.update(chain)
    return frozenset(found)
