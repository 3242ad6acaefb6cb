"""Why two operators are, or are not, one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from fusebound.analysis.space import Refusal
from fusebound.errors import UsageError
from fusebound.gates.base import Candidate, Facts, Verdict
from fusebound.gates.decide import Judgement
from fusebound.ir.control import control
from fusebound.ir.graph import Graph, UserOp
from fusebound.ir.names import locate
from fusebound.plan.candidates import roles, with_views
from fusebound.plan.plan import Group, Plan
from fusebound.plan.simulated import judge_simulated
from fusebound.target.target import Target
from fusebound.words import count


@dataclass(frozen=True, slots=True)
class Why:
    """The four verdicts on one pair of user operators, and where the plan puts them.

    `fused` says whether the plan has them in one kernel (None without a plan); `group` are the operators that
    were judged together; `saved_bytes` is what one kernel saves against two; `obstacles` are the operators other than
    the two that the first refusal is about. `inside` stands before their names where they lie in a subgraph:
    `cond.true/`. `a` is `b` where the two lie in different subgraphs of one operator of control flow.
    """

    a: UserOp
    b: UserOp
    judgement: Judgement
    saved_bytes: int
    group: tuple[str, ...]
    fused: bool | None = None
    obstacles: tuple[UserOp, ...] = ()
    inside: str = ""

    @property
    def pair(self) -> str:
        """The two in words, called as the plan calls them."""
        if self.a is self.b:
            return f"two parts of {self.inside}{self.a.label}"
        return f"{self.inside}{self.a.label} + {self.inside}{self.b.label}"

    @property
    def dependence(self) -> Verdict:
        return self.judgement.dependence

    @property
    def precision(self) -> Verdict:
        return self.judgement.precision

    @property
    def resources(self) -> Verdict:
        return self.judgement.resources

    @property
    def gain(self) -> Verdict:
        return self.judgement.gain

    @property
    def override(self) -> Verdict | None:
        return self.judgement.override

    @property
    def codes(self) -> tuple[str, ...]:
        return self.judgement.codes

    def __bool__(self) -> bool:
        return bool(self.judgement)

    def __repr__(self) -> str:
        verdict = "refused: " + " ".join(self.codes) if not self else "one kernel passes"
        return f"<Why {self.pair}: {verdict}, {count(self.saved_bytes, 'byte')} to save>"

    def __str__(self) -> str:
        gates = (self.dependence, self.precision, self.resources, self.gain)
        return "\n".join([self.pair, *(f"  {verdict}" for verdict in gates)])

    @property
    def counterfactual(self) -> str:
        """The smallest change that flips the first refusal; "" where there is none."""
        veto = self.judgement.first
        return veto.counterfactual if veto is not None else ""


def can_fuse(g: Graph, a: str, b: str, facts: Facts) -> Why:
    """Judge two user operators of a graph alone, with the views between them. Raises UsageError for unknown names.

    Operators of a subgraph are judged there; where one stands outside, control flow stands for the other.
    """
    path, first, second = _pair(g, a, b)
    for name in path:
        g = g.subgraphs[name]
    two = frozenset[str]() if first is second else _nodes(g, second)
    return _within(path, _judged(g, facts, first, second, _nodes(g, first), two, {}, None))


def why(plan: Plan, a: str, b: str, target: Target | None = None) -> Why:
    """Judge two user operators in a plan: the pair where it is fused, else the merge of their groups; in subgraphs as
    `can_fuse` does. A kernel that was measured and lost is judged with its times."""
    path, first, second = _pair(plan.graph, a, b)
    return _within(path, _planned(plan.at(path), first, second, target))


def _within(path: Sequence[str], why: Why) -> Why:
    return replace(why, inside=f"{path[-1]}/") if path else why


def _planned(plan: Plan, first: UserOp, second: UserOp, target: Target | None) -> Why:
    g = plan.graph
    facts = Facts(
        target or _target(plan.target), plan.numerics, plan.tau, plan.expected_calls, plan.policy, plan.rules
    )
    one, two = plan.group_of[first.name], plan.group_of[second.name]
    if first is second:
        return _judged(g, facts, first, second, frozenset(one.nodes), frozenset(), _owners(plan, one), False)
    lost = next((x for x in plan.dissolved if {first.name, second.name} <= set(x.users)), None)
    if lost is not None:
        facts = replace(facts, measured={frozenset(lost.nodes): (lost.fused_us, lost.eager_us)})
        return _judged(g, facts, first, second, *_split(g, lost.nodes, second), _owners(plan), False)
    if one is two and one.is_kernel:
        split = _split(g, one.nodes, second)
        return _judged(g, facts, first, second, *split, _owners(plan, one), True)
    nodes = (frozenset(one.nodes), frozenset(two.nodes))
    return _judged(g, facts, first, second, *nodes, _owners(plan, one, two), False)


def _target(name: str) -> Target:
    from fusebound.target import get

    return get(name)


def _pair(g: Graph, a: str, b: str) -> tuple[tuple[str, ...], UserOp, UserOp]:
    """Two operators in the innermost graph around both, and the names of the subgraphs around that.

    An operator further inside is stood for by the control flow that runs it: the same one for two branches of it.
    """
    (path_a, first), (path_b, second) = locate(g, a), locate(g, b)
    if path_a == path_b and first.name == second.name:
        raise UsageError(f"{first.label} is one operator; name two", where=f"{a}, {b}")
    path = tuple(x for x, _ in takewhile(lambda p: p[0] == p[1], zip(path_a, path_b, strict=False)))
    for name in path:
        g = g.subgraphs[name]
    first, second = (
        _runner(g, where[len(path)]) if len(where) > len(path) else u
        for where, u in ((path_a, first), (path_b, second))
    )
    order = {u.name: i for i, u in enumerate(g.user_ops)}
    return (path, first, second) if order[first.name] < order[second.name] else (path, second, first)


def _runner(g: Graph, subgraph: str) -> UserOp:
    """The operator that runs a subgraph."""
    return next(u for u in g.user_ops if (c := control(g, u)) is not None and subgraph in c.subgraphs)


def _nodes(g: Graph, u: UserOp) -> frozenset[str]:
    return frozenset(n.id for n in g.members[u.name])


def _owners(plan: Plan, *but: Group) -> dict[str, frozenset[str]]:
    return {n: frozenset(x.nodes) for x in plan.groups if x not in but for n in x.nodes}


def _split(g: Graph, nodes: Sequence[str], b: UserOp) -> tuple[frozenset[str], frozenset[str]]:
    """A kernel's nodes seen from one pair: everything that `b` and later operators compute against the rest."""
    later = {u.name for u in g.user_ops[[u.name for u in g.user_ops].index(b.name) :]}
    second = frozenset(n for n in nodes if g.node[n].user in later)
    return frozenset(nodes) - second, second


def _judged(
    g: Graph, facts: Facts, a: UserOp, b: UserOp, one: frozenset[str], two: frozenset[str],
    owner: dict[str, frozenset[str]], fused: bool | None,
) -> Why:  # fmt: skip
    c = with_views(g, roles(g, facts.numerics), one, two, owner)
    judgement = judge_simulated(c, facts, always=not isinstance(c.space, Refusal))
    return Why(a, b, judgement, c.saved_bytes, c.users(), fused, _obstacles(c, judgement.first, a, b))


def _obstacles(c: Candidate, veto: Verdict | None, a: UserOp, b: UserOp) -> tuple[UserOp, ...]:
    """What lies between the merged operators, else the one that the refusal is about, unless `a` or `b` is it."""
    about = tuple(dict.fromkeys(c.graph.node[n].user for n in veto.nodes)) if veto is not None else ()
    between = tuple(u for u in about if u not in c.users())
    return tuple(c.graph.user[u] for u in between or about[:1] if u not in (a.name, b.name))
