"""Which parts of an input a functional graph changes: the rest may be another thread's, and is not written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from fusebound.analysis.access import ints
from fusebound.ir.graph import Graph, Mutation, Node

Move = tuple[str, Any]
"""A primitive that makes a view, and how: `slice` (dim, start, step, size), `reshape` (shape), `permute` (perm)."""
Path = tuple[Move, ...]
View = Callable[[torch.Tensor], torch.Tensor]


def parts(g: Graph, m: Mutation) -> list[View] | None:
    """The views of the target through which the written slices are seen, or None where all of it is written.

    In place through views becomes `slice_scatter(x, part)`: a whole tensor, of which `part` alone is new.
    """

    @cache
    def written(value: str, at: Path) -> tuple[Path, ...] | None:
        """What differs from the target, of a value that stands where `at` shows it."""
        if value == m.target and not at:
            return ()
        n = g.producer.get(value)
        if n is None:
            return None
        if at and move(value) == at[-1]:
            return written(n.inputs[0], at[:-1])
        match n.op:
            case "slice_scatter":
                base, part = n.inputs
                here = (*at, ("slice", _cut(n, g.values[part].shape)))
                before, inside = written(base, at), written(part, here)
                return None if before is None else (*before, *((here,) if inside is None else inside))
            case "reshape":
                return written(n.inputs[0], (*at, ("reshape", g.values[n.inputs[0]].shape)))
            case "permute":
                perm = ints(n.attr("perm"))
                inverse = tuple(sorted(range(len(perm)), key=perm.__getitem__))
                return written(n.inputs[0], (*at, ("permute", inverse)))
            case _:
                return None

    def move(value: str) -> Move | None:
        """How a value is made from its operand, if it is a view of it."""
        n = g.producer[value]
        match n.op:
            case "slice":
                return "slice", _cut(n, g.values[value].shape)
            case "reshape":
                return "reshape", g.values[value].shape
            case "permute":
                return "permute", ints(n.attr("perm"))
            case _:
                return None

    found = written(m.source, ())
    if found is None or () in found:
        return None
    target = g.values[m.target]
    views = [_view(path) for path in dict.fromkeys(found)]
    try:
        whole = torch.empty_strided(target.shape, target.strides, device="meta")  # type: ignore[arg-type]
        for view in views:
            view(whole)
    except (RuntimeError, TypeError):  # a reshape that is no view, a size of the run
        return None
    return views


def _cut(n: Node, shape: Sequence[Any]) -> tuple[int, ...]:
    """Axis, start, step and size of what a node slices or scatters."""
    dim, start, step = ints((n.attr("dim"), n.attr("start"), n.attr("step")))
    return dim, start, step, shape[dim]


def _view(path: Path) -> View:
    def apply(t: torch.Tensor) -> torch.Tensor:
        for op, how in path:
            t = _applied(t, op, how)
        return t

    return apply


def _applied(t: torch.Tensor, op: str, how: Sequence[int]) -> torch.Tensor:
    match op:
        case "slice":
            dim, start, step, size = how
            stop = start + (size - 1) * step + 1 if size else start
            return t[(*(slice(None),) * dim, slice(start, stop, step))]
        case "reshape":
            return t.view(tuple(how))
        case _:
            return t.permute(tuple(how))
