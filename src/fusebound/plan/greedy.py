"""The greedy planner: largest values first, then readers of one value; gates judge every merge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fusebound.analysis.roofline import busy_users
from fusebound.analysis.structure import structure
from fusebound.analysis.tau import Tau
from fusebound.errors import UsageError
from fusebound.gates.base import Candidate, Facts
from fusebound.gates.decide import Judgement
from fusebound.gates.rules import NO_RULES, Rules
from fusebound.ir.graph import Graph
from fusebound.plan.assemble import Assembly
from fusebound.plan.candidates import Edge, Roles, raw_edges, roles, sibling_edges, views_between, with_views
from fusebound.plan.contracted import Contracted
from fusebound.plan.plan import Decision, Plan
from fusebound.plan.simulated import judge_simulated
from fusebound.settings import check_names
from fusebound.target.target import Target

ROUNDS = 3
"""Passes over the edges: a merge can make another one legal that was refused before (a cycle closed, a gain).
"""

_NEVER = ("F1", "F2", "F5", "F6", "F9")
_PASSING = ("F101", "F107", "F202", "F501")
"""Refusals that a larger group keeps: everything but resources and gain, and those that may pass (a value that
need not be stored any more changes the domain)."""


@dataclass(slots=True)
class Search:
    """The state of one planning run."""

    g: Graph
    facts: Facts
    roles: Roles
    groups: Contracted
    growing: bool = True
    decisions: list[Decision] = field(default_factory=list[Decision])
    refused: dict[tuple[int, int], tuple[int, int]] = field(
        default_factory=dict[tuple[int, int], tuple[int, int]]
    )
    never: dict[int, set[int]] = field(default_factory=dict[int, set[int]])

    def run(self) -> None:
        """Merge until no candidate passes, then judge every finished group as a whole.

        Where one is refused, its operators are tried once more with each merge judged in full.
        """
        self._grow()
        if self._charge():
            self.growing = False
            self._grow()

    def _grow(self) -> None:
        for _ in range(ROUNDS):
            before = len(self.groups.users)
            self._pass(raw_edges(self.g, self.roles))
            self._pass(sibling_edges(self.g, self.roles))
            if len(self.groups.users) == before:
                break

    def _charge(self) -> bool:
        """Dissolve groups that a look at the whole refuses: compile time, the error of its reductions."""
        merged = [i for i in self.groups.live() if len(self.groups.users[i]) > 1]
        keys = {i: structure(self.g, self.groups.nodes[i]) for i in merged}
        copies = Counter(keys.values())
        kept = [i for i in merged if self._pays(i, replace(self.facts, copies=copies[keys[i]]))]
        if len(kept) == len(merged):
            return False
        members = [self.groups.users[i] for i in kept]
        self.groups = Contracted(self.g, self.facts.numerics)
        for users in members:
            self.groups.merge(users)
        self.refused.clear()
        self.never.clear()
        return True

    def _pays(self, group: int, facts: Facts) -> bool:
        """Whether a finished group is right and worth its compilation; a refusal goes on the record."""
        c = Candidate(self.g, self.groups.nodes[group], frozenset(), acyclic=True)
        judgement = judge_simulated(c, facts)
        demanded = self.facts.rules.requires(self.g.user[u] for u in c.users())
        kept = bool(judgement.precision) and (bool(judgement.gain) or demanded)
        if not kept:
            busy = [u.name for u in busy_users(self.g, c.nodes)]
            step = len(self.decisions)
            self.decisions.append(Decision(step, busy[0], busy[-1], False, judgement, len(c.users())))
        return kept

    def _pass(self, edges: Iterable[Edge]) -> None:
        """Consider the edges, largest values first; among equals pairs before pairs of pairs, so that a chain of n
        operators costs n log n and not n².
        """
        ranked = sorted(enumerate(edges), key=lambda e: (-e[1].bytes, _trailing_ones(e[0]), e[0]))
        for _, e in ranked:
            self.consider(e)

    def consider(self, e: Edge) -> None:
        """Judge the merge of the two groups that an edge joins, and merge them if it passes."""
        a, b = (self.groups.find(self.groups.index[u]) for u in (e.a, e.b))
        if a == b or self._known(a, b):
            return
        chosen = self._closure(a, b)
        candidate = self._candidate(a, b, chosen)
        judgement = judge_simulated(candidate, replace(self.facts, growing=self.growing))
        accepted = bool(judgement)
        count = sum(len(self.groups.users[i]) for i in chosen)
        self.decisions.append(Decision(len(self.decisions), e.a, e.b, accepted, judgement, count))
        if accepted:
            self._merge(chosen)
        else:
            self._remember(a, b, judgement)

    def _closure(self, a: int, b: int) -> set[int]:
        """Both groups and the views between them, which would otherwise lie on a cycle."""
        views = views_between(self.g, self.roles, self.groups.nodes[a], self.groups.nodes[b])
        return {a, b} | {self.groups.find(self.groups.index[v]) for v in views}

    def _candidate(self, a: int, b: int, chosen: set[int]) -> Candidate:
        owner = self.groups.owner(self.groups.users) if self.groups.returns(chosen) else None
        return with_views(self.g, self.roles, self.groups.nodes[a], self.groups.nodes[b], owner)

    def _merge(self, chosen: set[int]) -> None:
        keep = self.groups.merge(chosen)
        inherited = {other for i in chosen for other in self.never.pop(i, ())}
        for other in inherited:
            self.never.setdefault(keep, set()).add(other)
            self.never.setdefault(other, set()).add(keep)

    def _known(self, a: int, b: int) -> bool:
        """Whether this merge was refused already and nothing has changed that could allow it."""
        if any(self.groups.find(other) == b for other in self.never.get(a, ())):
            return True
        old = self.refused.get((min(a, b), max(a, b)))
        return old == self._sizes(a, b)

    def _remember(self, a: int, b: int, judgement: Judgement) -> None:
        self.refused[min(a, b), max(a, b)] = self._sizes(a, b)
        if any(not v and v.code[:2] in _NEVER and v.code not in _PASSING for v in judgement.verdicts):
            self.never.setdefault(a, set()).add(b)
            self.never.setdefault(b, set()).add(a)

    def _sizes(self, a: int, b: int) -> tuple[int, int]:
        first, second = min(a, b), max(a, b)
        return len(self.groups.nodes[first]), len(self.groups.nodes[second])


def _trailing_ones(k: int) -> int:
    return (k ^ (k + 1)).bit_length() - 1


def plan(
    graph: Graph, *, target: Target, policy: str = "tile", numerics: str = "accurate",
    tau: Tau | None = None, expected_calls: int = 1000, rules: Rules = NO_RULES,
) -> Plan:  # fmt: skip
    """Plan a graph and its subgraphs for a target. Pure: the same arguments give the same plan.

    Candidates whose roundings vanish, and all under `tau`, are simulated by `analysis.simulate`. Raises UsageError
    (E101) for an unknown policy or numerics, and for rules beside a textbook policy, whose groups are the textbook's.
    """
    check_names(policy, numerics)
    if rules != NO_RULES and policy.startswith("textbook"):
        raise UsageError(f"policy {policy} takes no rules", where="rules", hint="policy tile")
    return _planned(graph, Facts(target, numerics, tau, expected_calls, policy, rules), "")


def _planned(graph: Graph, facts: Facts, prefix: str) -> Plan:
    """The plan of a graph whose groups are called `prefix` and a number, with those of its subgraphs."""
    search = Search(graph, facts, roles(graph, facts.numerics), Contracted(graph, facts.numerics))
    if facts.policy.startswith("textbook"):
        _textbook(search, strict=facts.policy == "textbook-strict")
    elif facts.policy != "none":
        search.run()
    nested = {name: _planned(s, facts, f"{name}/") for name, s in graph.subgraphs.items()}
    made = Assembly(graph, facts, search.roles, search.groups, nested, prefix)
    return made.plan(search.decisions)


def _textbook(search: Search, strict: bool) -> None:
    """Take the groups of the textbook's rules, with the views between their members."""
    from fusebound.textbook.policy import groups

    for users in groups(search.g, strict, search.facts.target):
        ids = {search.groups.find(search.groups.index[u]) for u in users}
        if len(ids) < 2:
            continue
        nodes = frozenset(n for i in ids for n in search.groups.nodes[i])
        views = views_between(search.g, search.roles, nodes, nodes)
        ids |= {search.groups.find(search.groups.index[v]) for v in views}
        if not search.groups.returns(ids):
            search.groups.merge(ids)
