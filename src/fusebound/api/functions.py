"""Capture, plan, build, verify, bench: the steps of `fusebound run`, one function each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusebound.api.origin import recall, remember
from fusebound.errors import FormatError, GraphError
from fusebound.ir.graph import Graph
from fusebound.plan.plan import Plan
from fusebound.settings import check_names, current
from fusebound.target.target import Target

if TYPE_CHECKING:
    from fusebound.plan.explain import Why
    from fusebound.report.schema import Report
    from fusebound.runtime.executable import Executable

Bound = float | Mapping[str, float] | None
Ruling = str | Path | Mapping[str, object] | None


def capture(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Graph:
    """Trace a function or nn.Module once on example arguments, through torch.export, without gradients.

    Shapes, types and strides of the arguments become part of the graph; so do Python numbers. Raises
    CaptureError (E2xx), naming the user's line, for a function that cannot be captured truthfully.
    """
    from fusebound.capture.torch import capture as trace

    return remember(trace(fn, args, kwargs))


def load(path: str | Path, *, trust: bool = False) -> Graph:
    """The graph of a `.pt2` archive, or of a graph, plan or region record in JSON.

    Raises UsageError for a missing file (E102) or an archive that would run code (E107, unless `trust`), and
    FormatError (E110) for a damaged one, GraphError (E301) for operators that do not run as the file says.
    """
    from fusebound.api.model import from_file
    from fusebound.api.pipeline import capture_model

    model = from_file(Path(path), trust=trust)
    try:
        return remember(capture_model(model))
    except (FormatError, GraphError) as e:
        raise e.within(str(path)) from None


def plan(
    graph: Graph,
    *,
    policy: str = "tile",
    numerics: str = "accurate",
    hardware: str | Target = "host",
    tau: Bound = None,
    expected_calls: int | None = None,
    rules: Ruling = None,
) -> Plan:
    """Decide the fusion boundaries of a graph.

    `policy` is one of "none", "textbook-strict", "textbook", "elementwise", "loop", "tile", "library";
    `numerics` is "accurate" (error against fp64 no worse than eager's) or "eager" (every rounding point
    kept); `hardware` is "host", a table's name or a Target; `tau` bounds |fused - eager|: a number in the
    outputs' unit, or a mapping of "absolute", "relative" and "ulp"; the time to compile must pay over
    `expected_calls` (FB_EXPECTED_CALLS, else 1000); `rules` is the path of a rules file or a mapping of the same
    form (docs/gates.md), of which one that names no operator or demands what cannot be is warned of (RuleNotice).
    Raises UsageError for an unknown policy, numerics or target, FormatError for rules that cannot be read.
    """
    from fusebound.analysis.tau import Tau
    from fusebound.gates.rules import RuleNotice, rules_of
    from fusebound.plan.greedy import plan as decide
    from fusebound.plan.unheeded import unheeded

    target = _target(hardware)
    made = decide(
        graph,
        target=target,
        policy=policy,
        numerics=numerics,
        tau=Tau.of(tau),
        expected_calls=current(expected_calls=expected_calls).expected_calls,
        rules=rules_of(rules),
    )
    for text in unheeded(made, target):
        warnings.warn(text, RuleNotice, stacklevel=2)
    return made


def why(plan: Plan, a: str, b: str) -> Why:
    """The four gates for two of the user's operators in a plan: `.dependence .precision .resources .gain`.

    Operators are named as in the user's code (`softmax`, `add_2`, `layers.0.mlp.act`). Raises UsageError,
    with close names or candidates, for an unknown or ambiguous one.
    """
    return plan.why(a, b)


def can_fuse(
    graph: Graph,
    a: str,
    b: str,
    *,
    policy: str = "tile",
    numerics: str = "accurate",
    hardware: str | Target = "host",
    tau: Bound = None,
    expected_calls: int | None = None,
    rules: Ruling = None,
) -> Why:
    """The four gates for two operators of a graph, outside any plan; true if all of them allow it.

    Arguments as for `plan`, names as for `why`.
    """
    from fusebound.analysis.tau import Tau
    from fusebound.gates.base import Facts
    from fusebound.gates.rules import rules_of
    from fusebound.plan.explain import can_fuse as judge

    check_names(policy, numerics)
    calls = current(expected_calls=expected_calls).expected_calls
    facts = Facts(_target(hardware), numerics, Tau.of(tau), calls, policy, rules_of(rules))
    return judge(graph, a, b, facts)


def build(plan: Plan) -> Executable:
    """Compile a plan's kernels for this machine; call the result like the function that was captured.

    A plan for another CPU runs on this one's vectors; one for a GPU raises UsageError (E131).
    `exe.kernels[i]` has `.source` (tile program), `.llvm`, `.asm` and `.resources`. Raises BuildError (E4xx)
    for a kernel that cannot be generated.
    """
    from fusebound.api.pipeline import build_plan

    return build_plan(plan, recall(plan.graph))


def verify(exe: Executable, *args: Any, **kwargs: Any) -> Report:
    """Check an executable against eager and a float64 oracle: `report.ok`, `report.errors`.

    The arguments are used as given, then filled with drawn and with special values; they hold their own
    values again afterwards.
    """
    from fusebound.api.pipeline import verify_built
    from fusebound.report.collect import report_of
    from fusebound.report.results import with_verify

    report = report_of(exe.plan, _target(exe.plan.target), model=exe.plan.graph.name)
    return with_verify(report, verify_built(exe, recall(exe.plan.graph), args, kwargs))


def bench(
    exe: Executable,
    *args: Any,
    against: Sequence[str] = ("eager",),
    rounds: int | None = None,
    **kwargs: Any,
) -> Report:
    """Measure an executable against "eager" and "inductor" in one interleaved run: `report.ratios`.

    Ratios are medians over rounds, with memory reused between calls and with every call's outputs held alive.
    """
    from fusebound.api.pipeline import bench_built
    from fusebound.report.collect import report_of
    from fusebound.report.results import with_bench

    report = report_of(exe.plan, _target(exe.plan.target), model=exe.plan.graph.name)
    found = bench_built(exe, recall(exe.plan.graph), args, kwargs, against=against, rounds=rounds)
    return with_bench(report, found)


def _target(hardware: str | Target) -> Target:
    from fusebound.target import get

    return get(hardware) if isinstance(hardware, str) else hardware
