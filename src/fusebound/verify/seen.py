"""As which types the operands of a discontinuous operator are seen: the user's, for it compares what is stored or what
a kernel has to round (F201), never a wide intermediate; two operands in the one type to which eager converts both."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch._ops import OpOverload

_DIVISIONS = ("aten::div", "aten::floor_divide")


def user_dtype(node: Any) -> torch.dtype | None:
    """The type that the user's program has at graph node `node`, or None where that is no tensor."""
    val = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return val.dtype if isinstance(val, torch.Tensor) else None


def seen_as(n: torch.fx.Node, op: OpOverload) -> list[Any]:
    """For each argument of `n` the tuple of floating types to which its value is rounded, one after the other; for a
    list a list of them."""
    common = _common(n, op)
    together = (common,) if common is not None else ()

    def of(i: int, a: Any) -> Any:
        if isinstance(a, (list, tuple)):
            return [of(i, x) for x in a]
        own = user_dtype(a)
        if own is None:
            return together if _is_number(op, i) else ()
        return (own, *together) if own.is_floating_point else ()

    return [of(i, a) for i, a in enumerate(n.args)]


def number_as(x: float, types: tuple[torch.dtype, ...]) -> float:
    """A Python number rounded so."""
    return torch.tensor(x, dtype=types[-1]).item() if types else x


def _common(n: torch.fx.Node, op: OpOverload) -> torch.dtype | None:
    """The floating type in which eager takes both operands of a pointwise operator, if there are two and one is
    floating; a division takes half-precision operands in float32, a number beside them too."""
    if torch.Tag.pointwise not in op.tags or len(n.args) < 2:
        return None
    pair: list[Any] = [a.meta.get("val") if isinstance(a, torch.fx.Node) else a for a in n.args[:2]]
    floating = any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in pair)
    if not floating or not all(isinstance(x, (torch.Tensor, int, float)) for x in pair):
        return None
    found = torch.result_type(*pair)
    divides = op._schema.name.removesuffix("_") in _DIVISIONS
    return torch.promote_types(found, torch.float32) if divides else found


def _is_number(op: OpOverload, i: int) -> bool:
    return isinstance(op._schema.arguments[i].type, torch.NumberType)
