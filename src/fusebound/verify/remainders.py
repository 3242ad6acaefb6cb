"""Remainders in the reference: which multiple is taken off is seen on rounded operands, as by every program; what is
left is that of the wide ones.

With a = q·b + r the remainder is continuous but where q changes, and it magnifies an error of b by q: rounded operands
alone would take a correctly rounded intermediate for the exact one. A number is no intermediate: every program divides
by it as rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload

_NAMES = ("remainder", "fmod", "frac")


def remainder_of(op: OpOverload) -> OpOverload | None:
    """The functional form of an operator that gives a remainder (of a division by 1 too), or None for another one."""
    name = op._schema.name.removeprefix("aten::").removesuffix("_")
    return getattr(getattr(torch.ops.aten, name), op._overloadname) if name in _NAMES else None


def remainder(op: OpOverload, seen: Sequence[Any], wide: Sequence[Any]) -> torch.Tensor:
    """`op` of the rounded operands `seen`, moved by what the `wide` ones differ from them."""
    found = op(*seen)
    if not found.is_floating_point():
        return found
    by = moved(found, seen, wide)
    return torch.where(by.isfinite() & (by != 0), found + by, found)


def moved(found: Any, seen: Sequence[Any], wide: Sequence[Any]) -> Any:
    """How far from `found`, the remainder of the operands `seen`, that of the `wide` ones lies by the same multiple."""
    (a, b), (to_a, to_b) = (*seen, 1.0)[:2], (*wide, 1.0)[:2]
    multiple = ((a - found) / b).round()
    return _apart(to_a, a) - multiple * _apart(to_b, b)


def _apart(wide: Any, seen: Any) -> Any:
    exact = isinstance(wide, (int, float)) or seen.dtype is torch.bool
    return 0.0 if exact else wide - seen
