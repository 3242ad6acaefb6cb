"""The phases behind the public functions and the commands, one function each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from fusebound.api.model import Model

if TYPE_CHECKING:
    from fusebound.capture.torch import Captured
    from fusebound.measure.bench import BenchResult
    from fusebound.plan.plan import Plan
    from fusebound.runtime.executable import Executable
    from fusebound.verify.call import Capture
    from fusebound.verify.result import VerifyResult


def capture_model(model: Model) -> Captured:
    """Trace a model on its example inputs; a graph from a file keeps its own names and lines.

    Raises CaptureError with the user's line.
    """
    if model.graph is not None:
        from fusebound.capture.saved import captured_from_graph

        return captured_from_graph(model.graph)
    from fusebound.capture.torch import capture

    return capture(model.fn, model.args, dict(model.kwargs))


def build_plan(plan: Plan, captured: Captured) -> Executable:
    """Compile a plan's kernels for this machine. Raises UsageError (E130) if the plan is of another graph."""
    from fusebound.engine.build import build

    return build(plan, captured)


def bench_built(
    exe: Executable,
    captured: Captured,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    against: Sequence[str] = ("eager",),
    rounds: int | None = None,
) -> BenchResult:
    """Time an executable and its opponents in one interleaved run; `rounds` None takes the usual number."""
    from fusebound.measure.bench import bench

    chosen = {} if rounds is None else {"rounds": rounds}
    return bench(exe, captured, args, kwargs, against=against, **chosen)


def verify_built(
    exe: Executable,
    captured: Captured,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    budget_s: float = 60.0,
) -> VerifyResult:
    """Check an executable against eager and the float64 oracle, by the rules of its plan.

    No further set of values is begun after `budget_s` seconds. Raises UsageError (E120, E123) for arguments that the
    executable was not built for.
    """
    from fusebound.verify.check import verify

    exe.require(captured.bind(args, dict(kwargs)))
    return verify(
        exe,
        cast("Capture", captured),
        args,
        kwargs,
        numerics=exe.plan.numerics,
        tau=exe.plan.tau,
        budget_s=budget_s,
    )
