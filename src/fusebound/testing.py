"""Assertions for the user's own tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fusebound.ir.names import locate

if TYPE_CHECKING:
    from fusebound.target.target import Target


def assert_fused(
    fn: Callable[..., Any],
    *args: Any,
    operators: Sequence[str],
    policy: str = "tile",
    numerics: str = "accurate",
    hardware: str | Target = "host",
    expected_calls: int = 1000,
    **kwargs: Any,
) -> None:
    """Fail unless the named operators of `fn` share one kernel in its plan for these arguments.

    Name a hardware table rather than `host` where the answer should not depend on the machine. Raises
    AssertionError with the gate, the code and the reason of the first pair that is apart; UsageError for an
    unknown operator.
    """
    from fusebound.api import capture, plan

    made = plan(
        capture(fn, *args, **kwargs),
        policy=policy,
        numerics=numerics,
        hardware=hardware,
        expected_calls=expected_calls,
    )
    found = [locate(made.graph, name) for name in operators]
    groups = [made.at(path).group_of[u.name] for path, u in found]
    for (one, a), (two, b) in pairwise(zip(groups, operators, strict=True)):
        if one.is_kernel and one is two:
            continue
        veto = made.why(a, b).judgement.first
        reason = (
            f"{veto.code} in the {veto.gate} gate: {veto.message}"
            if veto is not None
            else "the plan keeps them apart"
        )
        raise AssertionError(f"{a} and {b} are not one kernel: {reason}")
