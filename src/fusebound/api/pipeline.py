"""The phases behind the public functions and the commands, one function each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fusebound.api.model import Model
from fusebound.errors import UsageError

if TYPE_CHECKING:
    from fusebound.capture.torch import Captured
    from fusebound.ir.graph import Graph
    from fusebound.plan.plan import Plan
    from fusebound.runtime.executable import Executable
    from fusebound.target.target import Target


def capture_model(model: Model) -> Captured:
    """Trace a model on its example inputs. A saved plan brings its own graph, which replaces the traced one.

    Raises CaptureError with the user's line, and UsageError (E108) if a plan's graph has other inputs.
    """
    from fusebound.capture.torch import capture

    captured = capture(model.fn, model.args, dict(model.kwargs))
    if model.plan is None:
        return captured
    graph = model.plan.graph
    if len(graph.inputs) != len(captured.graph.inputs):
        raise UsageError("the plan's graph does not fit its own inputs", where=model.name, code="E108")
    return replace(captured, graph=graph)


def make_plan(
    graph: Graph,
    *,
    policy: str = "tile",
    numerics: str = "accurate",
    hardware: str | Target = "host",
    tau: float | None = None,
    expected_calls: int = 1000,
) -> Plan:
    """Decide the boundaries of a graph for a target (a name or a record)."""
    from fusebound import target as targets
    from fusebound.plan.greedy import plan

    chosen = targets.get(hardware) if isinstance(hardware, str) else hardware
    return plan(
        graph, target=chosen, policy=policy, numerics=numerics, tau=tau, expected_calls=expected_calls
    )


def build_plan(plan: Plan, captured: Captured) -> Executable:
    """Compile a plan's kernels. Raises UsageError (E108) if the plan is of another graph."""
    from fusebound.runtime.executable import Executable

    if plan.graph_key != captured.graph.key:
        what = f"the plan was made for graph {plan.graph_key}, this is {captured.graph.key}"
        raise UsageError(what, where="plan", hint="make it anew with `fusebound plan --save`", code="E108")
    return Executable(plan, captured)


def verify_executable(
    exe: Executable, captured: Captured, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Check an executable against the float64 oracle."""
    from fusebound.verify.check import verify

    return verify(exe, captured, args, kwargs)
