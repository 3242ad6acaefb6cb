"""A plan: groups in execution order, the cuts between them, and every decision that led there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fusebound.analysis.alias import Apart, preconditions
from fusebound.analysis.tau import Tau
from fusebound.files import write_text
from fusebound.gates.decide import Judgement
from fusebound.gates.rules import NO_RULES, Rules
from fusebound.ir.graph import Graph
from fusebound.words import count

if TYPE_CHECKING:
    from fusebound.plan.diff import PlanDiff
    from fusebound.plan.explain import Why

FORMAT = "fusebound.plan/1"


@dataclass(frozen=True, slots=True)
class Group:
    """What runs as one step: a generated kernel, or one user operator through the framework.

    `users` and `nodes` are in graph order; `inputs` and `outputs` are value ids that it reads and stores.
    Bytes are external traffic of the operators one by one (`before`) and of the group (`after`); times are
    µs.
    """

    id: str
    kind: str
    users: tuple[str, ...]
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    predicted_us: float
    bytes_before: int
    bytes_after: int
    launches_before: int

    @property
    def is_kernel(self) -> bool:
        return self.kind == "kernel"


@dataclass(frozen=True, slots=True)
class Cut:
    """A value that crosses from one group to another, and why its two operators are not one kernel.

    `bytes` is what a merge would save at most; `cost_us` the time that moving them takes.
    """

    producer: str
    consumer: str
    value: str
    code: str
    message: str
    bytes: int
    cost_us: float


@dataclass(frozen=True, slots=True)
class Decision:
    """One candidate that the planner judged, in order. `a` and `b` are the user operators whose groups met;
    `operators` counts the operators that the merged group has or would have."""

    step: int
    a: str
    b: str
    accepted: bool
    judgement: Judgement
    operators: int


@dataclass(frozen=True, slots=True)
class Dissolved:
    """A kernel that was built, lost against its operators when both were run, and is not in the plan any more."""

    users: tuple[str, ...]
    nodes: tuple[str, ...]
    fused_us: float
    eager_us: float


@dataclass(frozen=True)
class Plan:
    """A deterministic function of (graph, policy, numerics, τ, rules, target); self-contained when saved.

    Times are µs, bytes are bytes; `gap` is the share of the predicted time above the lower bound. `nested` are the
    plans of the graph's subgraphs (branches, loop bodies), by name: the group of an operator of control flow runs
    them. Control flow is predicted by its dearer branch, a loop by one round.
    """

    graph_key: str
    graph: Graph
    policy: str
    numerics: str
    target: str
    groups: tuple[Group, ...]
    cuts: tuple[Cut, ...]
    decisions: tuple[Decision, ...]
    predicted_us: float
    lower_bound_us: float
    gap: float
    peak_bytes: int
    eager_us: float
    tau: Tau | None = None
    expected_calls: int = 1000
    rules: Rules = NO_RULES
    nested: Mapping[str, Plan] = field(default_factory=dict[str, "Plan"])
    dissolved: tuple[Dissolved, ...] = ()

    def __repr__(self) -> str:
        moved = sum(g.bytes_after for g in self.groups)
        return (
            f"<Plan of {self.graph.name}: {count(len(self.groups), 'group')}, {count(len(self.kernels), 'kernel')}, "
            f"{count(moved, 'byte')}, {self.predicted_us:.4g} µs>"
        )

    @cached_property
    def group_of(self) -> dict[str, Group]:
        """The group of every user operator."""
        return {u: group for group in self.groups for u in group.users}

    @property
    def preconditions(self) -> tuple[Apart, ...]:
        """What the kernels take for granted of the inputs' memory; checked at every call."""
        return preconditions(self.graph)

    @property
    def kernels(self) -> tuple[Group, ...]:
        """The groups that are kernels, those of subgraphs after the others."""
        return tuple(g for _, p in self.everywhere() for g in p.groups if g.is_kernel)

    def everywhere(self, prefix: str = "") -> Iterator[tuple[str, Plan]]:
        """The plan itself and those of all subgraphs below it, each with what stands before the names of its
        operators: nothing, or `cond.true/`."""
        yield prefix, self
        for name, p in self.nested.items():
            yield from p.everywhere(f"{name}/")

    def at(self, path: Sequence[str]) -> Plan:
        """The plan of a subgraph, by the names of the subgraphs around it, outermost first."""
        return self.nested[path[0]].at(path[1:]) if path else self

    def to_json(self) -> dict[str, object]:
        """The plan as plain data, with its graph."""
        from fusebound.plan.record import plan_to_json

        return plan_to_json(self)

    @staticmethod
    def from_json(data: Mapping[str, object], where: str = "plan") -> Plan:
        """The inverse of `to_json`; raises FormatError for damaged data."""
        from fusebound.plan.record import plan_from_json

        return plan_from_json(data, where)

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON: one key a line, the same bytes for the same plan."""
        write_text(Path(path), json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n")

    @staticmethod
    def load(path: str | Path, graph: Graph | None = None) -> Plan:
        """Read a plan; raises FormatError for a missing or damaged file, or a plan of a graph other than `graph`."""
        from fusebound.plan.record import read_plan

        return read_plan(Path(path), graph)

    def diff(self, other: Plan) -> PlanDiff:
        """How `other` differs from this plan: groups, cuts, predictions."""
        from fusebound.plan.diff import diff

        return diff(self, other)

    def why(self, a: str, b: str) -> Why:
        """The four gates for two user operators in this plan; raises UsageError for an unknown name."""
        from fusebound.plan.explain import why

        return why(self, a, b)
