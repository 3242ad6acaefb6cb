"""Results that a call of a graph would return as something else (E202)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from fusebound.capture.source import shown
from fusebound.capture.state import Watch
from fusebound.capture.wrap import defined_at
from fusebound.errors import CaptureError


def check_results(result: Any, own: Collection[int], watch: Watch, fn: Callable[..., Any]) -> None:
    """Raise CaptureError for a new tensor that wants gradients or is a parameter, `own` being the identities of those
    that were given; and for a container that was there before, or that is returned twice: a call makes new ones.
    """
    for t in tree_leaves(result):
        if isinstance(t, torch.Tensor) and id(t) not in own:
            if isinstance(t, torch.nn.Parameter):
                raise _refusal("a parameter that it makes", "Parameter", watch, fn)
            if t.requires_grad:
                raise _refusal("a new tensor that wants gradients", "requires_grad", watch, fn)
    seen: set[int] = set()
    for c in _containers(result):
        if id(c) in seen or watch.holds(c):
            raise _refusal(
                f"one {type(c).__name__} twice, or one that it was given or reaches", "", watch, fn
            )
        seen.add(id(c))


def _containers(x: Any) -> Iterator[Any]:
    """Containers whose identity a caller may rely on, and those in them."""
    if isinstance(x, (list, dict, set, deque)):
        yield x
    if isinstance(x, (list, tuple, dict, deque)):
        for item in x.values() if isinstance(x, dict) else x:
            yield from _containers(item)


def _refusal(what: str, leaf: str, watch: Watch, fn: Callable[..., Any]) -> CaptureError:
    line = watch.line(leaf, store=False)
    return CaptureError(
        f"the function returns {what}, which a graph would not",
        where=shown(line) if line.file else defined_at(fn), hint="run it eagerly", code="E202",
    )  # fmt: skip
