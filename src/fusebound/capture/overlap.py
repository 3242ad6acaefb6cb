"""Memory that arguments share, and in-place operators that read what they overwrite (traps E204, E206)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
import torch
import torch.fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from fusebound.capture.source import shown, source_of
from fusebound.errors import CaptureError
from fusebound.ir.graph import Source

_MANY = 1 << 22
"""Elements up to which it is looked up whether two tensors meet."""


def extent(t: torch.Tensor) -> tuple[int, int]:
    """First and one-past-last byte that the tensor reaches, within its storage."""
    if t.numel() == 0:
        return 0, 0
    first = t.storage_offset()
    last = first + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return int(first * t.element_size()), int((last + 1) * t.element_size())


def _storage(t: torch.Tensor) -> int:
    """Equal for tensors that may share memory."""
    return t.untyped_storage()._cdata if t.layout == torch.strided else -id(t)


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one storage reach common addresses (their ranges meet)."""
    if a.layout != torch.strided or b.layout != torch.strided:
        return a is b
    (a0, a1), (b0, b1) = extent(a), extent(b)
    return max(a0, b0) < min(a1, b1)


def separated(args: Any, kwargs: Any, state: Sequence[torch.Tensor]) -> tuple[Any, Any, set[int]]:
    """Arguments with overlapping tensors copied apart, and the flat positions of those that overlapped.

    `state` holds the parameters and buffers, which an argument may overlap as well.
    """
    flat, spec = tree_flatten((args, kwargs))
    by_storage: dict[int, list[tuple[int, torch.Tensor]]] = {}
    for i, x in enumerate([*flat, *state]):
        if isinstance(x, torch.Tensor):
            by_storage.setdefault(_storage(x), []).append((i, x))
    met: set[int] = set()
    for group in by_storage.values():
        for (i, x), (j, y) in itertools.combinations(group, 2):
            if overlap(x, y):
                met.update(k for k in (i, j) if k < len(flat))
    if not met:
        return args, kwargs, met
    flat = [same_layout_copy(x) if i in met else x for i, x in enumerate(flat)]
    args, kwargs = tree_unflatten(flat, spec)
    return args, kwargs, met


def same_layout_copy(t: torch.Tensor) -> torch.Tensor:
    """A copy of the memory that a tensor spans, with its strides: elements behind several indices stay one."""
    t = t.detach()
    if t.layout != torch.strided or t.numel() == 0:
        return t.clone()
    span = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return t.as_strided((span,), (1,)).clone().as_strided(t.shape, t.stride(), 0)


def overlapping_mutation(name: str, source: Source) -> CaptureError:
    return CaptureError(
        f"argument {name} is mutated, and shares memory with another input", where=shown(source),
        hint="pass separate tensors, or run it eagerly", code="E204",
    )  # fmt: skip


def check_in_place(graph: torch.fx.Graph) -> None:
    """Raise E206 where eager raises: an in-place operator reads memory that partly overlaps its target.

    Eager judges dense operands only (`at::get_overlap_status`). For others it does not look, and elements that it
    has written already are read again: no graph says that either.
    """
    root: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        schema = node.target._schema
        aliased = [a for a, s in zip(node.args, schema.arguments, strict=False) if s.alias_info is not None]
        if aliased and isinstance(aliased[0], torch.fx.Node):
            root[node] = root.get(aliased[0], aliased[0])
        if not schema.is_mutable or not node.args or not isinstance(node.args[0], torch.fx.Node):
            continue
        target = node.args[0]
        for other in node.all_input_nodes:
            if other is not target and root.get(other, other) is root.get(target, target):
                _check_pair(node, target, other)
        if _repeats(target.meta.get("val")):
            raise _in_place(node, "writes to a tensor whose elements share memory")


def _check_pair(node: torch.fx.Node, target: torch.fx.Node, other: torch.fx.Node) -> None:
    a, b = target.meta.get("val"), other.meta.get("val")
    if not _is_static(a) or not _is_static(b):
        return
    (a0, a1), (b0, b1) = extent(a), extent(b)
    same = a0 == b0 and a.stride() == b.stride() and a.shape == b.shape
    if same or max(a0, b0) >= min(a1, b1):
        return
    if _dense(a) and _dense(b):
        raise _in_place(node, "reads memory that it partly overwrites")
    if _meet(a, b):
        raise CaptureError(
            f"{node.target} reads memory that it partly overwrites: what it gives depends on the order of its loop",
            where=shown(source_of(node)), hint="clone the operand first", code="E206",
        )  # fmt: skip


def _meet(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors share an element; large ones are taken to."""
    if a.numel() + b.numel() > _MANY or a.element_size() != b.element_size():
        return True
    return bool(np.isin(_places(a), _places(b)).any())


def _places(t: torch.Tensor) -> np.ndarray[Any, Any]:
    """Where the elements of a tensor are in its storage."""
    found = np.array(t.storage_offset())
    for n, s in zip(t.shape, t.stride(), strict=True):
        found = found[..., None] + np.arange(n) * s
    return found


def _is_static(t: Any) -> TypeGuard[torch.Tensor]:
    return (
        isinstance(t, torch.Tensor)
        and t.layout == torch.strided
        and all(isinstance(n, int) for n in (*t.shape, *t.stride(), t.storage_offset()))
    )


def _dense(t: torch.Tensor) -> bool:
    """No gaps and no overlap between elements, in some order of axes."""
    step = 1
    for s, n in sorted((s, n) for n, s in zip(t.shape, t.stride(), strict=True) if n != 1):
        if s != step:
            return False
        step *= n
    return True


def _repeats(t: Any) -> bool:
    return _is_static(t) and any(s == 0 and n > 1 for n, s in zip(t.shape, t.stride(), strict=True))


def _in_place(node: torch.fx.Node, what: str) -> CaptureError:
    return CaptureError(
        f"{node.target} {what}: eager raises here", where=shown(source_of(node)),
        hint="clone the operand first", code="E206",
    )  # fmt: skip
