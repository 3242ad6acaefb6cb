"""Making a failing case smaller: fewer parts, shorter axes, simpler values; each step is kept if it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

T = TypeVar("T")
Args = tuple[Any, ...]

SIZES = (1, 2, 3, 5, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
"""Lengths that are tried for an axis, round those of vectors."""
_PIECES = 16
"""Into how many pieces a tensor is cut at most to see which of its values matter."""


def fewer(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """A subset, in order, that fails and of which no single item can be left out (Zeller's delta debugging).

    `items` themselves fail. Asks about |items| · log |items| questions, at worst |items|².
    """
    parts = 2
    while len(items) > 1:
        size = -(-len(items) // parts)
        chunks = [items[i : i + size] for i in range(0, len(items), size)]
        rests = [[x for other in chunks if other is not c for x in other] for c in chunks]
        found = next((c for c in (*chunks, *rests) if len(c) < len(items) and fails(c)), None)
        if found is not None:
            parts = 2 if len(found) <= size else max(parts - 1, 2)
            items = found
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(items))
    return items


def shorter(args: Args, fails: Callable[[Args], bool]) -> Args:
    """Arguments with every length of their axes as short as it can be; axes of one length are cut alike."""
    for n in sorted({n for a in args if isinstance(a, torch.Tensor) for n in a.shape}, reverse=True):
        for small in SIZES:
            if small >= n:
                break
            if fails(cut := tuple(_cut(a, n, small) for a in args)):
                args = cut
                break
    return args


def _cut(a: Any, n: int, small: int) -> Any:
    """The first `small` points of every axis of length n, in memory of its own."""
    if not isinstance(a, torch.Tensor) or n not in a.shape:
        return a
    return a[tuple(slice(small) if length == n else slice(None) for length in a.shape)].clone()


def simpler(args: Args, fails: Callable[[Args], bool]) -> Args:
    """Arguments with values as plain as they can be: all alike, or few digits, and few that are not zero."""
    for i in range(len(args)):
        for plain in _plain(args[i]):
            if fails(tried := (*args[:i], plain, *args[i + 1 :])):
                args = tried
                break
        args = _sparser(args, i, fails)
    return args


def _plain(a: Any) -> Iterator[torch.Tensor]:
    if isinstance(a, torch.Tensor) and a.is_floating_point() and a.numel():
        yield torch.zeros_like(a)
        yield torch.ones_like(a)
        wide = a.to(torch.float64)
        yield torch.where(wide.isfinite(), wide.round(), wide).to(a.dtype)
        yield torch.where(wide.isfinite(), wide.round(decimals=1), wide).to(a.dtype)


def _sparser(args: Args, i: int, fails: Callable[[Args], bool]) -> Args:
    if not isinstance(args[i], torch.Tensor) or not args[i].is_floating_point():
        return args
    size = -(-args[i].numel() // _PIECES)
    for start in range(0, args[i].numel(), max(size, 1)):
        tried = args[i].clone(memory_format=torch.contiguous_format)
        piece = tried.view(-1)[start : start + size]
        if not bool(piece.any()):
            continue
        piece.zero_()
        if fails(candidate := (*args[:i], tried, *args[i + 1 :])):
            args = candidate
    return args
