"""The first call of a kind, once each way: tracing believes some layouts and views that eager does not make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from fusebound.capture.torch import Captured

Layout = tuple[Any, ...]


def rehearse(
    exe: Callable[..., Any], captured: Captured, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str:
    """What of a call's results is not as eager has it, in words; "" where types, strides and memory are.

    Runs the function and the executable on the arguments themselves. What they write holds its values again
    afterwards, and so does the random generator. Values are not compared: that is what `fusebound verify` is for.
    """
    targets = {m.target for m in captured.graph.mutations}
    inputs = zip(captured.graph.input_ids, captured.bind(args, kwargs), strict=True)
    written = [t for v, t in inputs if v in targets]
    with torch.no_grad():
        theirs = _observed(captured.fn, args, kwargs, written)
        mine = _observed(exe, args, kwargs, written)
    if mine == theirs:
        return ""
    if isinstance(mine, str) or isinstance(theirs, str) or len(mine) != len(theirs):
        return f"the plan {_words(mine)}, eager {_words(theirs)}"
    i = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
    given = len(tree_leaves((tuple(args), dict(kwargs))))
    what = f"argument {i}" if i < given else f"result {i - given}"
    return f"{what} is left as {_words(mine[i])}, by eager as {_words(theirs[i])}"


def _observed(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], written: Sequence[torch.Tensor]
) -> list[Layout] | str:
    """The layouts of arguments and results after a call, or the name of what it raised."""
    before = [(t, t.clone()) for t in written]
    try:
        with torch.random.fork_rng(devices=[]):
            results = fn(*args, **kwargs)
        return layouts([*tree_leaves((tuple(args), dict(kwargs))), *tree_leaves(results)])
    except Exception as error:
        return type(error).__name__
    finally:
        for t, held in before:
            t.copy_(held)


def layouts(held: Sequence[Any]) -> list[Layout]:
    """For each tensor: type, shape, the strides that are walked, the first one in the same memory (no element lies in
    any) and the bytes from there, and the first one that is the same object. Of other values, the type."""
    first: dict[int, tuple[int, int]] = {}
    objects: dict[int, int] = {}
    found: list[Layout] = []
    for i, t in enumerate(held):
        if not isinstance(t, torch.Tensor) or t.layout != torch.strided:
            found.append((type(t).__name__,))
            continue
        place = int(t.storage_offset()) * t.element_size()
        owner, start = first.setdefault(t.untyped_storage()._cdata, (i, place)) if t.numel() else (i, place)
        strides = tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1) if t.numel() else ()
        same = objects.setdefault(id(t), i)
        found.append((str(t.dtype), tuple(t.shape), strides, owner, place - start, same))
    return found


def _words(what: object) -> str:
    match what:
        case str(error):
            return f"raises {error}"
        case list(results):
            return f"gives {len(results)} values"
        case (dtype, shape, strides, owner, offset, same):
            where = f"in the memory of value {owner} at byte {offset}"
            return (
                f"{str(dtype)[6:]}{list(shape)}, strides {strides}, {where}, the same object as value {same}"
            )
        case _:
            return str(what)
