"""`fusebound.compile`, and what it may be told of custom operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusebound.capture.registry import CustomOp
    from fusebound.engine.compile import CompiledFunction
    from fusebound.ir.maps import Index


def compile(
    fn: Callable[..., Any],
    *,
    policy: str = "tile",
    numerics: str = "accurate",
    hardware: str = "host",
    expected_calls: int | None = None,
    tau: float | Mapping[str, float] | None = None,
    rules: str | Path | Mapping[str, object] | None = None,
    strict: bool | None = None,
    check: float | None = None,
) -> CompiledFunction:
    """A function that runs `fn` with fused kernels; nothing is captured or compiled before its first call.

    `fn` is a callable or an nn.Module. Every kind of call (shapes, types, strides, Python constants, training
    flags) is captured once; calls that cannot be served run eagerly, which is said once, or raise
    FallbackError with `strict`. A form that measures slower than eager is replaced by eager. The other
    arguments are those of `plan`. Left out, `expected_calls` and `strict` follow FB_EXPECTED_CALLS and
    FB_STRICT (1000 and False). `f.plan` and `f.executable` are those of the latest call.

    With `check`, a share above 0 and up to 1, every 1/check-th call (rounded) is also run eagerly, on copies and
    with the same random numbers, and compared: `f.report` says what that has shown, and numbers that are worse
    than eager's by the rule of docs/gates.md are warned of once. Raises UsageError for another share, and
    for an unknown policy, numerics or hardware (E101).
    """
    from fusebound.analysis.tau import Tau
    from fusebound.engine.compile import Options
    from fusebound.engine.compile import compile as wrap
    from fusebound.engine.sampled import SampledFunction
    from fusebound.errors import UsageError
    from fusebound.gates.rules import rules_of
    from fusebound.settings import check_names, current
    from fusebound.target import get

    if not callable(fn):
        raise UsageError(f"{fn!r:.60} is not callable", where="fn", hint="a function or an nn.Module")
    if check is not None and not (isinstance(check, (int, float)) and 0 < check <= 1):
        raise UsageError(
            f"check={check!r} is no share of the calls", where="check", hint="above 0, at most 1"
        )
    check_names(policy, numerics)
    get(hardware)
    chosen = current(expected_calls=expected_calls, strict=strict)
    options = Options(
        policy=policy,
        numerics=numerics,
        hardware=hardware,
        expected_calls=chosen.expected_calls,
        tau=Tau.of(tau),
        rules=rules_of(rules),
        strict=chosen.strict,
    )
    return wrap(fn, options) if check is None else SampledFunction(fn, options, check)


def register_op(
    name: str,
    cls: str,
    *,
    maps: Sequence[Index] | None = None,
    lower: Callable[..., Any] | None = None,
) -> CustomOp:
    """Tell fusebound what a custom operator of `torch.library` is; it stays a boundary otherwise.

    `name` is `library::operator`; `cls` a class of the IR ("pointwise", "reduce", "move", "gather",
    "scatter", "scan", "contract", "random", "opaque"); `maps` the index at which each tensor operand is read;
    `lower(c, *args)` builds it from primitives and makes it fusible. Raises UsageError (E122) for what does
    not fit the operator.
    """
    from fusebound.capture.registry import register_op as register

    return register(name, cls, lower, maps)
