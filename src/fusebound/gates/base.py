"""Evidence, verdicts, and what gates are asked. A gate is a pure function `(Candidate, Facts) -> Verdict`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from fusebound.analysis.alias import storages
from fusebound.analysis.group import boundary, in_order
from fusebound.analysis.numerics import ErrorFacts
from fusebound.analysis.space import Refusal, Space, unify
from fusebound.analysis.tau import Tau
from fusebound.analysis.traffic import Traffic, apart_bytes, kernel_traffic, unfused_bytes
from fusebound.gates.rules import NO_RULES, Rules
from fusebound.ir.graph import Graph
from fusebound.target.target import Target

State = Literal["pass", "fail", "conditional", "unknown"]
Quantity = float | int | str
SourceOfFact = Literal["static", "simulated", "assembled", "measured"]
GATES = ("dependence", "precision", "resources", "gain")

OK = "F000"
"""The code of a verdict that objects to nothing; it has no page."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact behind a verdict: `quantity` is `value`, which should be `relation` `limit` (both in `unit`).

    `margin` is limit minus value where both are numbers (positive: room left).
    """

    quantity: str
    value: Quantity
    relation: str = "="
    limit: Quantity = ""
    unit: str = ""
    source: SourceOfFact = "static"
    margin: float | None = None

    @staticmethod
    def bound(
        quantity: str,
        value: float,
        limit: float,
        unit: str,
        relation: str = "≤",
        source: SourceOfFact = "static",
    ) -> Evidence:
        """A number beside its limit, with the margin towards the allowed side."""
        margin = limit - value if relation in ("≤", "<") else value - limit
        return Evidence(quantity, value, relation, limit, unit, source, margin)

    def __str__(self) -> str:
        text = f"{self.quantity} = {_number(self.value)}"
        if self.limit != "":
            text = f"{self.quantity}: {_number(self.value)} {self.relation} {_number(self.limit)}"
        return f"{text} {self.unit}".rstrip()


def _number(x: Quantity) -> str:
    return figure(x) if isinstance(x, float) else str(x)


def figure(x: float) -> str:
    """Three or four significant digits, without an exponent for large numbers."""
    return f"{x:.0f}" if abs(x) >= 1000 else f"{x:.3g}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One gate's answer. `nodes` are the primitives concerned; `counterfactual` says what would flip a fail."""

    gate: str
    state: State
    code: str
    message: str
    nodes: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    counterfactual: str = ""

    def __bool__(self) -> bool:
        return self.state in ("pass", "conditional")

    def __str__(self) -> str:
        code = "" if self.code == OK else f" {self.code}"
        return f"{self.gate}: {self.state}{code}, {self.message}"


@dataclass(frozen=True)
class Candidate:
    """The merge of two groups of primitives into one kernel.

    `owner` maps nodes outside to the group that they are in (absent: a group of their own), so that
    cycles of the contracted graph are found. A planner that knows that there is none says `acyclic`.
    """

    graph: Graph
    a: frozenset[str]
    b: frozenset[str]
    owner: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]], compare=False)
    acyclic: bool = False

    @cached_property
    def nodes(self) -> frozenset[str]:
        return self.a | self.b

    @cached_property
    def space(self) -> Space | Refusal:
        """The common iteration space of the merged group, or why there is none."""
        return unify(self.graph, self.nodes)

    @cached_property
    def traffic(self) -> Traffic:
        """External bytes of the merged kernel."""
        return kernel_traffic(self.graph, self.nodes)

    @cached_property
    def apart_bytes(self) -> int:
        """External bytes of the two sides, each unmerged; with `b` empty, of the operators of `a` one by one."""
        if not self.b:
            return unfused_bytes(self.graph, self.users())
        return sum(apart_bytes(self.graph, side) for side in (self.a, self.b))

    @property
    def saved_bytes(self) -> int:
        """Bytes that the two sides move and one kernel does not."""
        return self.apart_bytes - self.traffic.total

    @cached_property
    def between(self) -> tuple[str, ...]:
        """Values that one side makes and the other reads, in order."""
        made: list[str] = []
        for first, second in ((self.a, self.b), (self.b, self.a)):
            reads, _ = boundary(self.graph, second)
            made += [v for v in reads if v in self.graph.producer and self.graph.producer[v].id in first]
        return tuple(made)

    @cached_property
    def common(self) -> tuple[str, ...]:
        """Values from outside that both sides read, themselves or through views: the owners of the memory."""
        base = storages(self.graph).base
        one, two = ([base[v] for v in boundary(self.graph, side)[0]] for side in (self.a, self.b))
        return tuple(dict.fromkeys(v for v in one if v in two))

    def users(self, nodes: frozenset[str] | None = None) -> tuple[str, ...]:
        """The user operators of some of the nodes (all by default), in order."""
        chosen = in_order(self.graph, self.nodes if nodes is None else nodes)
        return tuple(dict.fromkeys(n.user for n in chosen))

    def label(self, node: str) -> str:
        """The user operator of a primitive, with its line."""
        return self.graph.user[self.graph.node[node].user].label


@dataclass(frozen=True, slots=True)
class Facts:
    """What gates may know beside the graph.

    `simulated` holds errors of merged groups by their node set, `measured` their times in µs as one kernel and
    run by the framework. `tau` is the plan's; `tau_of` knows the rules too.

    While a group is still `growing`, compile time is shown but not charged: a planner charges it to the
    finished group, once for all equal kernels (`copies`), so that the order of merges does not matter.
    """

    target: Target
    numerics: str = "accurate"
    tau: Tau | None = None
    expected_calls: int = 1000
    policy: str = "tile"
    rules: Rules = NO_RULES
    growing: bool = False
    copies: int = 1
    simulated: Mapping[frozenset[str], ErrorFacts] = field(default_factory=dict[frozenset[str], ErrorFacts])
    measured: Mapping[frozenset[str], tuple[float, float]] = field(
        default_factory=dict[frozenset[str], tuple[float, float]]
    )

    def tau_of(self, c: Candidate) -> Tau | None:
        """The τ that the merged group is held to: by a rule, else the plan's."""
        return self.rules.tau_of((c.graph.user[u] for u in c.users()), self.tau)


def passed(
    gate: str, message: str, evidence: tuple[Evidence, ...] = (), nodes: tuple[str, ...] = ()
) -> Verdict:
    """The verdict of a gate that has no objection."""
    return Verdict(gate, "pass", OK, message, nodes, evidence)


def first(verdicts: Iterator[Verdict | None]) -> Verdict:
    """The first verdict of a sequence of checks that ends with a pass. (A fail is falsy: `or` would skip it.)"""
    return next(v for v in verdicts if v is not None)
