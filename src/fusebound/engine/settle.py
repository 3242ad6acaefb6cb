"""Build, measure, and let go of the kernels that lose: the plan that a user gets is one that pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusebound.capture.torch import Captured
from fusebound.engine.build import build
from fusebound.engine.contest import contest
from fusebound.plan.dissolve import dissolve
from fusebound.plan.plan import Plan
from fusebound.runtime.executable import Executable
from fusebound.target import get
from fusebound.target.target import Target


def settle(
    plan: Plan, captured: Captured, args: Sequence[Any], kwargs: Mapping[str, Any], *,
    target: Target | None = None,
) -> Executable:  # fmt: skip
    """An executable without kernels that are slower than the operators they replace, on these inputs.

    Its `plan` holds the cuts that were measured (F405). Raises what `build` raises.
    """
    exe = build(plan, captured, target=target)
    kept = dissolve(plan, contest(exe, captured, args, kwargs), target or get(plan.target))
    if kept is plan:
        return exe
    kernels = {g.id: k for g, k in zip(plan.kernels, exe.kernels, strict=True)}
    alive = {g.id: kernels[g.id] for g in kept.kernels}
    return Executable(kept, captured, alive)
