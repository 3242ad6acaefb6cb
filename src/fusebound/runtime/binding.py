"""Between the user's arguments and a graph's inputs, without building trees where there are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fusebound.capture.captured import Captured
from fusebound.ir.graph import Ref, Value

Binder = Callable[[tuple[Any, ...]], Sequence[Any]]
Kind = tuple[torch.Size, torch.dtype, tuple[int, ...]]


def positional(captured: Captured) -> bool:
    """Whether the function takes tensors one by one, by position, and nothing else."""
    spec = captured.in_spec
    if spec is None or captured.constants or captured.keywords or spec.num_children != 2:
        return False
    args, kwargs = spec.children()
    return kwargs.num_children == 0 and all(c.is_leaf() for c in args.children())


def binder(captured: Captured) -> Binder:
    """From positional arguments, none of them nested, to the graph's inputs.

    Those of a saved graph are all arguments, parameters and buffers too; else these are fetched at every call.
    """
    place = {v: i for i, v in enumerate(captured.user_inputs) if v is not None}
    getters = [captured.state[i] for i in captured.graph.input_ids if i not in place]
    order = [place.get(i, -1) for i in captured.graph.input_ids]
    if order == list(range(len(captured.user_inputs))):
        return lambda given: given
    if not getters:
        return lambda given: [given[i] for i in order]

    def mixed(given: tuple[Any, ...]) -> Sequence[Any]:
        state = iter(getters)
        return [given[i] if i >= 0 else next(state)() for i in order]

    return mixed


def result(captured: Captured) -> Callable[[list[Any]], Any]:
    """From the graph's outputs to the user's structure."""
    spec = captured.out_spec
    plain = all(isinstance(r, Ref) for r in captured.returns)
    if plain and spec is not None and spec.is_leaf():
        return lambda values: values[0]
    if plain and spec is not None and spec.type is tuple and all(c.is_leaf() for c in spec.children()):
        return tuple
    return captured.unflatten


def kind(v: Value) -> Kind | None:
    """What a tensor must be to be this value exactly; None for numbers and symbolic sizes."""
    if v.scalar or not v.is_static or not hasattr(torch, v.dtype):
        return None
    sizes = (tuple(d for d in dims if isinstance(d, int)) for dims in (v.shape, v.strides))
    shape, strides = sizes
    return torch.Size(shape), getattr(torch, v.dtype), strides


def is_kind(t: Any, expected: Kind | None) -> bool:
    """Whether a graph input needs no further look."""
    if expected is None or not isinstance(t, torch.Tensor):
        return False
    shape, dtype, strides = expected
    return t.shape == shape and t.dtype is dtype and t.stride() == strides and not t.is_neg()
