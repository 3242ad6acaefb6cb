"""Memory that arguments share, or that one tensor reaches twice (trap E204)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from fusebound.capture.source import shown
from fusebound.errors import CaptureError
from fusebound.ir.graph import Source


def extent(t: torch.Tensor) -> tuple[int, int]:
    """First and one-past-last byte that the tensor reaches, within its storage."""
    if t.numel() == 0:
        return 0, 0
    first = t.storage_offset()
    last = first + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return int(first * t.element_size()), int((last + 1) * t.element_size())


def storage_of(t: torch.Tensor) -> int:
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
            by_storage.setdefault(storage_of(x), []).append((i, x))
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


def folds(t: torch.Tensor) -> bool:
    """Whether several indices of a tensor may meet at one address."""
    reach = 0
    for stride, n in sorted((s, n) for s, n in zip(t.stride(), t.shape, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += (n - 1) * stride
    return False


def overlapping_mutation(name: str, source: Source) -> CaptureError:
    return CaptureError(
        f"argument {name} is mutated, and shares memory with another input", where=shown(source),
        hint="pass separate tensors, or run it eagerly", code="E204",
    )  # fmt: skip
