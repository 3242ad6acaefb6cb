"""Distinct slices (`unique` along an axis), laid out while tracing as eager lays them out.

Eager stacks the slices that it keeps and moves the axis back; tracing believes the result row-major, so that a
`contiguous` after it would be lost, and counts a negative axis of `unique_consecutive` wrongly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_impls import op_implementations_dict

_OPERATORS = (torch.ops.aten.unique_dim.default, torch.ops.aten.unique_consecutive.default)


@contextlib.contextmanager
def distinct_rows() -> Iterator[None]:
    """Trace distinct slices with eager's strides."""
    held = {op: op_implementations_dict[op] for op in _OPERATORS}
    op_implementations_dict.update({op: _moved(rule) for op, rule in held.items()})
    try:
        yield
    finally:
        op_implementations_dict.update(held)


def _moved(held: Callable[..., Any]) -> Callable[..., Any]:
    def call(mode: Any, op: torch._ops.OpOverload, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        names = [a.name for a in op._schema.arguments[1:]]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if (dim := given.get("dim")) is None or not x.dim():
            return held(mode, op, x, **given)
        kept, *others = held(mode, op, x.movedim(dim, 0), **{**given, "dim": 0})
        return kept.movedim(0, dim), *others

    return call
