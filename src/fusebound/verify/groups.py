"""The values that a plan's kernels store, as a program of its own: computed by the plan where they arise, by the user's
operators one by one, and in float64.

Verified like any program, it shows in which group an error arises: the first whose values are worse than eager's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch.export import ExportedProgram

from fusebound.analysis.tau import Tau
from fusebound.capture.captured import Captured
from fusebound.capture.saved import evaluated, example
from fusebound.capture.torch import trace
from fusebound.errors import FuseboundError
from fusebound.plan.plan import Group, Plan
from fusebound.verify.call import bind
from fusebound.verify.held import held
from fusebound.verify.program import Program


@runtime_checkable
class Planned(Protocol):
    """An executable whose groups can be watched (`runtime.executable.Executable`)."""

    @property
    def plan(self) -> Plan: ...

    @property
    def captured(self) -> Captured: ...

    def watched(
        self, inputs: Sequence[Any], see: Callable[[Group, Mapping[str, Any]], None]
    ) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Stored:
    """The program of a plan's stored values; `names` has the group and the value of each of its outputs."""

    program: Program
    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Traced:
    fn: Callable[..., object]
    program: ExportedProgram


_APART = "what each kernel stores was not compared:"


def stored(exe: object, args: Sequence[Any], kwargs: Mapping[str, Any], tau: Tau | None) -> Stored | str:
    """The program of what the kernels of `exe` store, on these very arguments, held to the τ of its plan.

    "" for what has no plan or no kernel; why not, for a plan whose operators cannot be run one by one (sizes that
    depend on data) or draw other random numbers than eager's.
    """
    if not isinstance(exe, Planned):
        return ""
    if getattr(exe, "counted_draws", 0):
        return f"{_APART} its random numbers are not eager's"
    names = tuple((g.id, v) for g in exe.plan.groups if g.is_kernel for v in g.outputs)
    if not names:
        return ""
    graph, inputs = exe.captured.graph, tuple(exe.captured.bind(args, kwargs))

    def one_by_one(*given: Any) -> tuple[Any, ...]:
        env = evaluate(*given)
        return tuple(env[v] for _, v in names)

    def in_place(*given: Any) -> tuple[Any, ...]:
        seen: dict[str, Any] = {}

        def see(group: Group, values: Mapping[str, Any]) -> None:
            seen.update((v, t.clone()) for v, t in values.items() if group.is_kernel)

        exe.watched(given, see)
        return tuple(seen[v] for _, v in names)

    try:
        evaluate = evaluated(graph, exe.captured.modules)
        program = trace(one_by_one, tuple(example(graph.values[v]) for v in graph.input_ids))
    except (RuntimeError, TypeError, ValueError, FuseboundError) as why:
        return f"{_APART} its operators do not run one by one: {str(why).splitlines()[0]}"
    captured = _Traced(one_by_one, program)
    leaves = bind(captured, inputs)
    bounds = held(exe.plan, [v for _, v in names], tau)
    return Stored(Program(in_place, one_by_one, captured, inputs, {}, leaves, bounds), names)
