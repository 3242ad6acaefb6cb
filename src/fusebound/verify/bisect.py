"""Where a program's numbers go wrong: the group, the fewest operators, and the smallest input that still show it.

First groups of the plan are left to the framework, by halves, until one cannot be spared. Then its operators, as a
function of their own on the values that they meet in the user's program, are compiled alone; fewer of them, shorter
axes and plainer values are kept as long as the result fails. Every question is put to `check.verify`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusebound.analysis.tau import Tau
from fusebound.capture.captured import Captured
from fusebound.capture.replay import inputs_of
from fusebound.capture.saved import evaluated
from fusebound.errors import FormatError, FuseboundError
from fusebound.gates.rules import NO_RULES, Rules
from fusebound.ir.graph import UserOp
from fusebound.plan.plan import Plan
from fusebound.plan.trial import only
from fusebound.verify.call import Snapshot, bind, tensors
from fusebound.verify.check import verify
from fusebound.verify.inputs import GIVEN, fill
from fusebound.verify.program import own_copies
from fusebound.verify.result import VerifyResult
from fusebound.verify.smaller import Args, fewer, shorter, simpler
from fusebound.verify.source import Source, function_of, program_of

Build = Callable[[Plan], Callable[..., object]]
"""Compiles a plan of the program itself."""
Alone = Callable[[Callable[..., Any], Args], tuple[Callable[..., object], Captured]]
"""Compiles a function for its arguments in the way that is under suspicion: (executable, captured)."""
_FAILURES = (FuseboundError, RuntimeError, TypeError, ValueError, IndexError)
"""What a function that was cut out may raise when it is captured, compiled or run: no answer, so no failure."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """What makes a program differ.

    `set` is the set of values on which it was found, `groups` the kernels that cannot be spared (none for a program
    without a plan), `operators` the fewest that fail as `source` on `args`; `found` is that failure. Where the
    operators alone are right, so that the fault lies in how the program runs them, `source` is the whole program
    (`whole`), or None if that is right as well once its operators are written out. `tau` is what it is held to.
    """

    set: str
    groups: tuple[str, ...]
    operators: tuple[UserOp, ...]
    edges: tuple[tuple[str, str], ...]
    found: VerifyResult
    source: Source | None
    args: Args
    questions: int
    whole: bool = False
    tau: Tau | None = None

    @property
    def place(self) -> str:
        """The operator, the boundary between two, or the subgraph, in words."""
        if len(self.operators) == 1 and not self.whole:
            return f"the kernel of {self.operators[0].label} alone"
        if len(self.operators) == 2 and len(self.edges) == 1 and not self.whole:
            a, b = self.operators
            return f"the boundary between {a.label} and {b.label}"
        names = ", ".join(u.label for u in self.operators)
        return (
            f"the program as a whole, not the kernel of {names} alone"
            if self.whole
            else f"the kernel of {names}"
        )


class Bisection:
    """One search. `alone` compiles functions as one kernel (or as the other compiler does), `planned` as the plan's own
    options do; `numerics`, `tau` and `rules` are those that the program promised. No question is begun after `budget_s`
    seconds: what was found till then stands."""

    def __init__(
        self, captured: Captured, args: Sequence[Any], kwargs: Mapping[str, Any], alone: Alone,
        planned: Alone | None = None, *, numerics: str = "accurate", tau: Tau | None = None, rules: Rules = NO_RULES,
        budget_s: float = 120.0, seed: int = 0,
    ) -> None:  # fmt: skip
        self._captured, self._alone, self._planned, self._seed = captured, alone, planned, seed
        self._args, self._kwargs = own_copies(captured, args, kwargs)
        self._numerics, self._tau, self._rules = numerics, tau, rules
        self._deadline = time.perf_counter() + budget_s
        self._questions = 0
        self._compiled: dict[object, tuple[Callable[..., object], Captured]] = {}

    def plan(self, plan: Plan, build: Build, found: VerifyResult) -> Culprit | None:
        """What makes this plan, for which `found` failed, differ; None where nothing fails any more."""
        kind = _set_of(found)
        kernels = [g.id for g in plan.groups if g.is_kernel]
        asked = dict[frozenset[str], bool]()

        def fails(ids: Collection[str]) -> bool:
            key = frozenset(ids)
            if key not in asked:
                asked[key] = self._whole_fails(build(only(plan, key)), kind)
            return asked[key]

        if not fails(kernels):
            return None
        first = [found.origin.group] if found.origin is not None else kernels
        groups = tuple(fewer(first if fails(first) else kernels, fails))
        users = [u for g in plan.groups if g.id in groups for u in g.users]
        return self._operators(found, groups, users)

    def program(self, found: VerifyResult) -> Culprit:
        """What makes a program that was compiled as a whole, and for which `found` failed, differ."""
        return self._operators(found, (), [u.name for u in self._captured.graph.user_ops])

    def _whole_fails(self, exe: Callable[..., object], kind: str) -> bool:
        if self._spent():
            return False
        return not verify(
            exe, self._captured, self._args, self._kwargs, numerics=self._numerics, tau=self._tau, sets=(kind,),
            seed=self._seed,
        ).ok  # fmt: skip

    def _operators(self, found: VerifyResult, groups: tuple[str, ...], names: Sequence[str]) -> Culprit:
        kind, graph = _set_of(found), self._captured.graph
        env = self._values(kind)

        def cut(users: Sequence[UserOp]) -> tuple[Source, Args]:
            source = function_of(graph, users)
            return source, tuple(_own(env[v]) for v in source.inputs)

        def fails(users: Sequence[UserOp]) -> bool:
            return self._ask(self._alone, *cut(users), self._tau_of(users)) is not None

        users: Sequence[UserOp] = [graph.user[n] for n in names]
        try:
            if fails(users):
                users = fewer(users, fails)
                return self._smallest(self._alone, *cut(users), kind, groups, users)
            if self._planned is not None:
                source = program_of(graph)
                args = tuple(_own(env[v]) for v in source.inputs)
                if self._ask(self._planned, source, args, self._tau_of(users)) is not None:
                    return self._smallest(self._planned, source, args, kind, groups, users)
        except FormatError:  # an operator that cannot be written as text
            pass
        return Culprit(kind, groups, tuple(users), _edges(users), found, None, (), self._questions)

    def _tau_of(self, users: Sequence[UserOp]) -> Tau | None:
        """What a kernel of these operators is held to."""
        return self._rules.tau_of(users, self._tau)

    def _smallest(
        self, compile: Alone, source: Source, args: Args, kind: str, groups: tuple[str, ...],
        users: Sequence[UserOp],
    ) -> Culprit:  # fmt: skip
        """A function that fails, on arguments as small and plain as they can be."""
        tau = self._tau_of(users)

        def fails(some: Args) -> bool:
            return self._ask(compile, source, some, tau) is not None

        args = simpler(shorter(args, fails), fails)
        self._deadline = float("inf")
        result = self._ask(compile, source, args, tau)
        assert result is not None
        whole = compile is self._planned
        return Culprit(
            kind, groups, tuple(users), _edges(users), result, source, args, self._questions, whole, tau
        )

    def _ask(self, compile: Alone, source: Source, args: Args, tau: Tau | None) -> VerifyResult | None:
        """The failure of a function on some arguments, if it fails."""
        kinds = tuple((a.shape, a.stride()) for a in args if isinstance(a, torch.Tensor))
        key = compile, source.text, kinds
        if self._spent():
            return None
        try:
            if key not in self._compiled:
                self._compiled[key] = compile(source.function(), args)
            exe, captured = self._compiled[key]
            result = verify(
                exe, captured, args, numerics=self._numerics, tau=tau, sets=(GIVEN,), seed=self._seed
            )
        except _FAILURES:
            return None
        return None if result.ok else result

    def _values(self, kind: str) -> dict[str, Any]:
        """Every value of the user's program on a set of values, by eager's operators."""
        leaves = bind(self._captured, self._args, self._kwargs)
        given = Snapshot(tensors(leaves))
        if kind != GIVEN:
            fill(leaves, kind, self._seed)
        inputs = [_own(t) for t in self._captured.bind(self._args, self._kwargs)]
        given.restore()
        torch.manual_seed(self._seed)
        with torch.no_grad():
            return evaluated(self._captured.graph, self._captured.modules)(*inputs)

    def _spent(self) -> bool:
        self._questions += 1
        return time.perf_counter() > self._deadline


def _set_of(found: VerifyResult) -> str:
    """The set of values on which a program failed first."""
    return found.failures[0].set if found.failures else found.sets[0]


def _own(value: Any) -> Any:
    """A tensor in memory of its own, with its strides."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _edges(users: Sequence[UserOp]) -> tuple[tuple[str, str], ...]:
    """Pairs of operators of which the second reads what the first makes."""
    return tuple(
        (a.name, b.name) for a in users for b in users if not set(a.outputs).isdisjoint(inputs_of(b))
    )
