"""Custom operators (`torch.library`): their class, their index maps, and, where given, their primitives."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fusebound.capture import replay
from fusebound.capture.lower.context import LOWERINGS, Unlowered
from fusebound.errors import CaptureError, FuseboundError, UsageError
from fusebound.ir.maps import Index, show
from fusebound.ir.ops import CLASSES, OpClass
from fusebound.words import count

CUSTOM: dict[str, CustomOp] = {}


@dataclass(frozen=True, slots=True)
class CustomOp:
    """What the user said of an operator. `maps` has one index per tensor operand, over the output's axes
    (and, after them, the axes that a reduction runs over)."""

    target: str
    cls: OpClass
    maps: tuple[Index, ...] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        return tuple(map(show, self.maps))


def register_op(
    name: str, cls: str, lower: Callable[..., Any] | None = None, maps: Sequence[Index] | None = None
) -> CustomOp:
    """Tell fusebound what a custom operator is.

    `name` is `library::operator` or `library.operator[.overload]`, as given to `torch.library`. `cls` is a
    class of the IR (`pointwise`, `reduce`, …). `maps` gives the element of each tensor operand that an
    element of the output reads. `lower(c, *args)` builds the operator from primitives, in the style of
    `capture/lower`, and makes it fusible:

        register_op("mine::swish", "pointwise", lower=lambda c, x: x / (c("exp", -x) + 1.0))

    Without `lower` the operator stays a boundary, of a known class. Raises UsageError (E122) for an operator
    that does not exist, a class that is none, or maps that do not fit the operands.
    """
    op = _find(name)
    if cls not in CLASSES:
        raise UsageError(
            f"{cls!r} is not a class of operators", where=name, hint=", ".join(CLASSES), code="E122"
        )
    target = f"{op.namespace}.{op._opname}.{op._overloadname}"
    given = tuple(tuple(m) for m in maps or ())
    tensors = sum("Tensor" in str(a.type) for a in op._schema.arguments)
    if maps is not None and len(given) != tensors:
        raise UsageError(
            f"{count(len(given), 'index map')} for {count(tensors, 'tensor operand')}", where=name, code="E122",
            hint="one tuple of Affine expressions for each operand",
        )  # fmt: skip
    replay.allow(op.namespace)
    entry = CustomOp(target, next(c for c in CLASSES if c == cls), given)
    CUSTOM[target] = entry
    if lower is not None:
        LOWERINGS[target] = lower
    else:
        LOWERINGS.pop(target, None)
    return entry


@contextlib.contextmanager
def naming_lower(target: str, lower: Callable[..., Any]) -> Iterator[None]:
    """Raise what a user's `lower` raises as CaptureError (E211) at its line; Unlowered passes."""
    try:
        yield
    except Unlowered:
        raise
    except Exception as e:
        text = e.what if isinstance(e, FuseboundError) else f"{type(e).__name__}: {e}"
        hint = e.hint if isinstance(e, FuseboundError) else ""
        raise CaptureError(
            f"the `lower` that was registered for {target} fails: {text}",
            where=_line(e, lower), hint=hint, code="E211",
        ) from e  # fmt: skip


def _line(e: Exception, lower: Callable[..., Any]) -> str:
    """The innermost line outside fusebound that raised, else where `lower` is defined."""
    here = str(Path(__file__).parents[1])
    frames = [f for f in traceback.extract_tb(e.__traceback__) if not f.filename.startswith(here)]
    if frames:
        return f"{frames[-1].filename}:{frames[-1].lineno}"
    code = getattr(lower, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def _find(name: str) -> torch._ops.OpOverload:
    namespace, _, rest = name.replace("::", ".").partition(".")
    packet, _, overload = rest.partition(".")
    library = getattr(torch.ops, namespace, None)
    found = getattr(library, packet, None) if packet else None
    found = getattr(found, overload or "default", None)
    if not isinstance(found, torch._ops.OpOverload):
        raise UsageError(
            f"there is no operator {name!r}", code="E122",
            hint="register it with torch.library first; overloads are named library.operator.overload",
        )  # fmt: skip
    return found
