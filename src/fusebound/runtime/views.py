"""Views of what kernels write, worked out before the run: their shapes, strides and offsets are constants there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from fusebound.analysis.alias import is_view
from fusebound.capture.replay import inputs_of, is_alias, prepare
from fusebound.ir.graph import Graph, UserOp
from fusebound.runtime.steps import dtype_of, shape_of, strides_of

Forms = dict[str, torch.Tensor]
"""Tensors without memory that have the geometry of the graph's values."""


def source(op: UserOp) -> str:
    """The value that a view looks at."""
    return inputs_of(op)[0]


def forms(graph: Graph, allocated: Collection[str], ops: Sequence[UserOp]) -> tuple[Forms, list[UserOp]]:
    """The geometry of what is allocated and of the views of it, and which of the operators, given in their order, are
    such views. A result of another type, or to be conjugated or negated, is no plain part of its operand."""
    found = {v: _form(graph, v) for v in allocated}
    views: list[UserOp] = []
    for op in ops:
        if not (is_view(graph, op) or is_alias(op)) or len(inputs_of(op)) != 1 or source(op) not in found:
            continue
        given = found[source(op)]
        made: dict[str, Any] = dict(zip(op.outputs, prepare(op)([given]), strict=True))
        if all(t.dtype == given.dtype and not t.is_conj() and not t.is_neg() for t in made.values()):
            found |= made
            views.append(op)
    return found, views


def _form(graph: Graph, value: str) -> torch.Tensor:
    shape, strides = shape_of(graph, value), strides_of(graph, value)
    return torch.empty_strided(shape, strides, dtype=dtype_of(graph, value), device="meta")


def merged(
    forms: Forms, allocated: Collection[str], views: Sequence[UserOp], kept: Collection[str]
) -> dict[str, str]:
    """Allocated values at which nothing outside of kernels looks but one view of all their elements, by that view, and
    such views in their turn: memory can be allocated as the last of them. `kept` values are looked at otherwise."""
    looks = Counter(source(op) for op in views for _ in op.outputs)
    found: dict[str, str] = {}
    for op in views:
        v, view = source(op), op.outputs[0]
        alone = looks[v] == 1 and v not in kept and (v in allocated or v in found.values())
        if alone and _is_whole(forms[view], forms[v]):
            found[v] = view
    return found


def last(as_view: Mapping[str, str], value: str) -> str:
    """The view of a view … as which a value is allocated."""
    while value in as_view:
        value = as_view[value]
    return value


def _is_whole(view: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether a view has every element of its operand once, without gaps."""
    extent = 1
    for stride, size in sorted(zip(view.stride(), view.shape, strict=True)):
        if size != 1 and stride != extent:
            return False
        extent *= size
    return extent == source.numel() and view.storage_offset() == 0
