"""Which part of a compiled program is to blame for its wrong numbers: fusebound's own, or Inductor's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusebound.capture.torch import Captured
    from fusebound.plan.plan import Plan
    from fusebound.runtime.executable import Executable
    from fusebound.verify.bisect import Culprit
    from fusebound.verify.result import VerifyResult

Args = tuple[Any, ...]


def bisect_plan(
    exe: Executable, captured: Captured, args: Args, kwargs: Mapping[str, Any], found: VerifyResult
) -> Culprit | None:
    """What makes an executable, for which `found` failed, differ; None where it no longer does."""
    from fusebound.capture.torch import capture
    from fusebound.engine.build import build
    from fusebound.plan import greedy
    from fusebound.plan.trial import one_kernel
    from fusebound.target import get
    from fusebound.verify.bisect import Bisection

    plan = exe.plan

    def alone(fn: Callable[..., Any], args: Args) -> tuple[Executable, Captured]:
        cut = capture(fn, args)
        return build(one_kernel(cut.graph, numerics=plan.numerics, tau=plan.tau), cut), cut

    def planned(fn: Callable[..., Any], args: Args) -> tuple[Executable, Captured]:
        whole = capture(fn, args)
        target = get(plan.target)
        made = greedy.plan(
            whole.graph, target=target, policy=plan.policy, numerics=plan.numerics, tau=plan.tau,
            expected_calls=plan.expected_calls, rules=plan.rules,
        )  # fmt: skip
        return build(made, whole, target=target), whole

    def built(some: Plan) -> Executable:
        return build(some, captured)

    search = Bisection(
        captured, args, kwargs, alone, planned, numerics=plan.numerics, tau=plan.tau, rules=plan.rules
    )
    return search.plan(plan, built, found)


def by_inductor(fn: Callable[..., Any], args: Args, kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """A function compiled by Inductor for fixed shapes; raises UsageError where Inductor fails on these arguments.

    It is compiled anew for other strides and numbers of threads, on which TorchDynamo guards: what users would get.
    """
    import warnings

    import torch
    from torch.utils._pytree import tree_map_only

    from fusebound.errors import UsageError

    compiled = torch.compile(fn, dynamic=False)
    try:
        own_args, own_kwargs = tree_map_only(torch.Tensor, torch.clone, (args, dict(kwargs)))
        with torch.no_grad(), warnings.catch_warnings():
            # Inductor's warnings speak of its own internals.
            warnings.simplefilter("ignore")
            compiled(*own_args, **own_kwargs)
    except Exception as why:  # whatever Inductor raises of its own is its failure, not ours
        text = (str(why) or type(why).__name__).splitlines()[0]
        hint = "it needs a C++ compiler"
        raise UsageError(f"Inductor cannot compile this function: {text}", hint=hint) from why
    return compiled


def bisect_inductor(
    captured: Captured, args: Args, kwargs: Mapping[str, Any], found: VerifyResult
) -> Culprit:
    """What makes Inductor's form of a function, for which `found` failed, differ."""
    from fusebound.capture.torch import capture
    from fusebound.verify.bisect import Bisection

    def alone(fn: Callable[..., Any], args: Args) -> tuple[Callable[..., Any], Captured]:
        return by_inductor(fn, args, {}), capture(fn, args)

    return Bisection(captured, args, kwargs, alone).program(found)
