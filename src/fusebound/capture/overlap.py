"""Memory that arguments share, or that one tensor reaches twice (trap E204)."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from fusebound.capture.source import shown
from fusebound.errors import CaptureError
from fusebound.ir.graph import Source

_STEPS = 1000
"""Combinations that are tried before two tensors count as meeting."""


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


def meet(a: torch.Tensor, b: torch.Tensor, apart: int) -> bool:
    """Whether two strided tensors have a byte in common; `b` starts `apart` bytes behind `a`.

    Exact up to `_STEPS`: `Σ strideₖ·tₖ = apart` is to be solved, where each axis of `a` gives a term from 0 to its
    last index, each axis of `b` one down to minus its last index, and the bytes of an element count as an axis.
    """
    if a.numel() == 0 or b.numel() == 0:
        return False
    axes: dict[int, tuple[int, int]] = {}
    for t, sign in ((a, 1), (b, -1)):
        size = t.element_size()
        for n, s in ((size, 1), *((n, s * size) for n, s in zip(t.shape, t.stride(), strict=True) if s)):
            lo, hi = axes.get(s, (0, 0))
            axes[s] = (lo, hi + n - 1) if sign > 0 else (lo - n + 1, hi)
    terms = [(s, *axes[s]) for s in sorted(axes, reverse=True)]
    return _solvable(apart, terms, itertools.count())


def _solvable(total: int, terms: Sequence[tuple[int, int, int]], steps: itertools.count[int]) -> bool:
    """Whether `Σ strideₖ·tₖ = total` with `loₖ ≤ tₖ ≤ hiₖ`; large strides first leave the next one few choices."""
    if next(steps) > _STEPS:
        return True
    if not terms:
        return total == 0
    (s, lo, hi), rest = terms[0], terms[1:]
    least, most = sum(s * lo for s, lo, _ in rest), sum(s * hi for s, _, hi in rest)
    first, last = max(lo, -((most - total) // s)), min(hi, (total - least) // s)
    return any(_solvable(total - s * t, rest, steps) for t in range(first, last + 1))


def meeting(inputs: Sequence[Any], apart: Mapping[int, Collection[int]]) -> tuple[int, int] | None:
    """The first written input that shares memory with another that it must be apart from, and that one (itself where
    several of its indices may reach one element); `apart` maps the places of written inputs to those of the others.
    """
    for i in apart:
        if _span(i, inputs[i]) is not None and folds(inputs[i]):
            return i, i
    reaching: list[tuple[int, int]] = []
    for start, end, j in sorted(span for i, t in enumerate(inputs) if (span := _span(i, t)) is not None):
        reaching = [(e, i) for e, i in reaching if e > start]
        for _, i in reaching:
            a, b = (i, j) if j in apart.get(i, ()) else (j, i)
            if b in apart.get(a, ()) and meet(inputs[i], inputs[j], start - inputs[i].data_ptr()):
                return a, b
        reaching.append((end, j))
    return None


def disjoint(inputs: Sequence[torch.Tensor], lengths: Sequence[int]) -> bool:
    """Whether no two tensors that span so many bytes have ranges that meet: cheaper than `meeting`, which has to answer
    where they do."""
    end = 0
    for start, length in sorted(zip(map(torch.Tensor.data_ptr, inputs), lengths, strict=True)):
        if start < end:
            return False
        end = start + length
    return True


def _span(place: int, t: Any) -> tuple[int, int, int] | None:
    """First and one-past-last address of an input, and its place; None for what has no memory of this machine."""
    if (
        not isinstance(t, torch.Tensor)
        or t.layout != torch.strided
        or t.numel() == 0
        or t.device.type != "cpu"
    ):
        return None
    lo, hi = extent(t)
    start = t.data_ptr()
    return start, start + hi - lo, place


def separated(args: Any, kwargs: Any, state: Sequence[torch.Tensor]) -> tuple[Any, Any, set[int]]:
    """Arguments with tensors whose ranges overlap copied apart, and the flat positions of those that share elements.

    `state` holds the parameters and buffers, which an argument may overlap as well. Tracing takes no interleaved
    tensors, even where they share no element.
    """
    flat, spec = tree_flatten((args, kwargs))
    by_storage: dict[int, list[tuple[int, torch.Tensor]]] = {}
    for i, x in enumerate([*flat, *state]):
        if isinstance(x, torch.Tensor):
            by_storage.setdefault(storage_of(x), []).append((i, x))
    near: set[int] = set()
    met: set[int] = set()
    for group in by_storage.values():
        for (i, x), (j, y) in itertools.combinations(group, 2):
            if _near(x, y):
                near |= {i, j}
                met |= {i, j} if _meet(x, y) else set()
    met &= set(range(len(flat)))
    if not near:
        return args, kwargs, met
    flat = [same_layout_copy(x) if i in near else x for i, x in enumerate(flat)]
    args, kwargs = tree_unflatten(flat, spec)
    return args, kwargs, met


def _near(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the ranges of two tensors of one storage meet."""
    if a.layout != torch.strided or b.layout != torch.strided:
        return a is b
    (a0, a1), (b0, b1) = extent(a), extent(b)
    return max(a0, b0) < min(a1, b1)


def _meet(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one storage, whose ranges meet, share elements."""
    return a.layout != torch.strided or meet(a, b, extent(b)[0] - extent(a)[0])


def same_layout_copy(t: torch.Tensor) -> torch.Tensor:
    """A copy of the memory that a tensor spans, with its strides: elements behind several indices stay one."""
    t = t.detach()
    if t.layout != torch.strided or t.numel() == 0:
        return t.clone()
    span = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return t.as_strided((span,), (1,)).clone().as_strided(t.shape, t.stride(), 0)


def folds(t: torch.Tensor) -> bool:
    """Whether several indices of a tensor may meet at one address."""
    return folded(t.shape, t.stride())


def folded(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether several indices of such a layout may meet at one address."""
    reach = 0
    for stride, n in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += (n - 1) * stride
    return False


def overlapping_mutation(name: str, source: Source) -> CaptureError:
    return CaptureError(
        f"argument {name} is mutated, and shares memory with another input", where=shown(source),
        hint="pass separate tensors, or run it eagerly", code="E204",
    )  # fmt: skip
