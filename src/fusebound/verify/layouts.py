"""Calls with arguments of other sizes, of other layouts in memory, and sharing memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch

from fusebound.verify.call import Leaf, has_memory, storage_key

TRANSPOSED, GAPPED, EXPANDED, OVERLAPPING = (
    "transposed",
    "every second element",
    "expanded rows",
    "overlapping",
)
LAYOUTS = (TRANSPOSED, GAPPED, EXPANDED)
CALLS = (*LAYOUTS, OVERLAPPING)
"""Sets that change how the arguments lie in memory; their values are those of "like"."""

BOUNDARY_SIZES = (1, 15, 16, 17, 31, 33, 127, 1025)
"""Sizes round a vector, two vectors, and a tile: where kernels go wrong."""


def relaid(leaves: Sequence[Leaf], kind: str, fixed: Collection[int]) -> dict[int, torch.Tensor]:
    """The user's tensors in another layout of `LAYOUTS`, by position, but for those at `fixed` and what shares their
    memory. The values stay, so that "expanded rows" takes those whose rows are equal (`level`)."""
    held = {storage_key(leaves[i].value) for i in fixed}
    free = [(i, leaf.value) for i, leaf in _movable(leaves) if storage_key(leaf.value) not in held]
    found = {i: _LAYOUTS[kind](t.detach()) for i, t in free}
    return {i: t for i, t in found.items() if t.stride() != leaves[i].value.stride()}


def level(leaves: Sequence[Leaf]) -> None:
    """Give the user's tensors rows that are all like the first, in place."""
    for _, leaf in _movable(leaves):
        if leaf.value.dim() > 1:
            t = leaf.value.detach()
            t.copy_(t[(0,) * (t.dim() - 1)].clone().expand(t.shape))


def overlapped(leaves: Sequence[Leaf], written: Collection[int]) -> list[dict[int, torch.Tensor]]:
    """For each written tensor of the user's and each other one of its type: the two in one memory, the other one
    element further on."""
    users = dict(_movable(leaves))
    pairs = [(i, j) for i in users if i in written for j in users if i != j]
    return [
        {i: a, j: b}
        for i, j in pairs
        if users[i].value.dtype == users[j].value.dtype
        for a, b in [_together(users[i].value.detach(), users[j].value.detach())]
    ]


def _together(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies with the strides of the two, in one memory, `b` one element behind `a`."""
    base = a.new_zeros(max(_span(a), 1 + _span(b)))
    pair = base.as_strided(a.shape, a.stride(), 0), base.as_strided(b.shape, b.stride(), 1)
    for view, t in zip(pair, (a, b), strict=True):
        view.copy_(t)
    return pair


def _span(t: torch.Tensor) -> int:
    """Elements from a tensor's first to its last."""
    return 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))


def _movable(leaves: Sequence[Leaf]) -> Iterator[tuple[int, Leaf]]:
    """The user's tensors with memory of their own element by element."""
    for i, leaf in enumerate(leaves):
        if leaf.kind != "user" or not leaf.is_tensor or not has_memory(leaf.value) or not leaf.value.numel():
            continue
        pairs = zip(leaf.value.stride(), leaf.value.shape, strict=True)
        if type(leaf.value) is torch.Tensor and leaf.value.dim() and all(s or n == 1 for s, n in pairs):
            yield i, leaf


def boundary_variants(args: Sequence[object]) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Calls with the given arguments at boundary sizes and in other layouts: (label, arguments).

    Every axis as long as the last (then the first) axis of the first tensor is resized alike, so that
    shapes keep agreeing. A function may refuse a shape; the caller has to ask eager first.
    """
    first = next((a for a in args if isinstance(a, torch.Tensor) and a.dim()), None)
    if first is None:
        return
    for n in (0, *BOUNDARY_SIZES):
        yield f"last axis {n}", tuple(_resized(a, first.shape[-1], n) for a in args)
    if first.dim() > 1 and first.shape[0] != first.shape[-1]:
        for n in (0, 1, 3):
            yield f"first axis {n}", tuple(_resized(a, first.shape[0], n) for a in args)
    for label, change in _LAYOUTS.items():
        yield label, tuple(change(a) if isinstance(a, torch.Tensor) else a for a in args)


def _resized(a: object, size: int, n: int) -> object:
    if not isinstance(a, torch.Tensor) or not a.dim() or not a.numel():
        return a
    for axis, length in enumerate(a.shape):
        if length == size:
            a = a.index_select(axis, torch.arange(n) % length)
    return a


def _transposed(a: torch.Tensor) -> torch.Tensor:
    return a.transpose(-1, -2).contiguous().transpose(-1, -2) if a.dim() > 1 else a.clone()


def _every_second(a: torch.Tensor) -> torch.Tensor:
    """Elements two apart, from an odd offset."""
    if not a.dim():
        return a.clone()
    view = a.new_zeros((*a.shape[:-1], 2 * a.shape[-1] + 1))[..., 1::2]
    return view.copy_(a)


def _expanded(a: torch.Tensor) -> torch.Tensor:
    """The first row of every axis but the last, repeated by a stride of 0."""
    if a.dim() < 2 or not a.numel():
        return a.clone()
    row = a[(0,) * (a.dim() - 1)].clone()
    return row.expand(a.shape)


_LAYOUTS = {TRANSPOSED: _transposed, GAPPED: _every_second, EXPANDED: _expanded}
