"""Eager without its allocations: a function's ATen operators, replayed into results that are allocated once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

aten = torch.ops.aten
_COPIES = (aten._to_copy.default, aten.clone.default)
"""Operators that amount to `copy_` into their result; they have no `out=` kernel of their own."""

_ALLOCATIONS = (aten.empty.memory_format, aten.empty_like.default)
_RESIZING = (aten.huber_loss.default,)
"""Operators whose `out=` kernel keeps other values in the result on the way, and resizes it twice a call."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A result that is another tensor at every call."""

    index: int


class Replay:
    """`Replay(fn, args)()` runs the operators that `fn` runs on `args`, in their order, and returns its results.

    An operator whose `out=` variant has a CPU kernel writes into memory of its own, the same at every call; views of
    such memory are taken once; what works in place does so; the rest allocates, as in eager. Python numbers among
    `args` stay what they are.
    """

    def __init__(self, fn: Callable[..., Any], args: Sequence[Any]) -> None:
        traced = make_fx(fn, tracing_mode="fake")(*args)
        self._slots: list[Any] = []
        self._steps: list[Callable[[], object]] = []
        self._allocating: list[str] = []
        values: dict[Node, Any] = {}
        given = iter(args)
        for node in traced.graph.nodes:
            match node.op:
                case "placeholder":
                    values[node] = next(given)
                case "get_attr":
                    values[node] = getattr(traced, node.target)
                case "call_function":
                    values[node] = self._add(node, *pytree.tree_map_only(Node, values.get, _arguments(node)))
                case _:
                    self._returned = pytree.tree_map_only(Node, values.get, node.args[0])

    @property
    def allocating(self) -> tuple[str, ...]:
        """Operators that allocate their results at every call, in the order in which they run."""
        return tuple(self._allocating)

    def __call__(self) -> Any:
        for step in self._steps:
            step()
        return self._filled(self._returned)

    def _add(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the step of one operator; what it returns stands for its result in later ones."""
        op: Any = node.target
        known = not any(isinstance(leaf, Slot) for leaf in pytree.tree_leaves((args, kwargs)))
        if known and _only_looks(op):
            return op(*args, **kwargs)
        if op in _ALLOCATIONS:
            return _memory(node)
        if isinstance(op, torch._ops.OpOverload):
            if op._schema.is_mutable and known:
                self._steps.append(partial(op, *args, **kwargs))
                return args[0]
            if op in _COPIES:
                result = _memory(node)
                self._step(aten.copy_.default, (result, args[0]), {})
                return result
            if found := _out_variant(op):
                variant, names = found
                result = _memory(node)
                each = result if isinstance(result, tuple) else (result,)
                self._step(variant, args, {**kwargs, **dict(zip(names, each, strict=True))})
                return result
            if not _only_looks(op):
                self._allocating.append(str(op))
        self._slots.append(None)
        self._step(op, args, kwargs, keep=len(self._slots) - 1)
        return Slot(len(self._slots) - 1)

    def _step(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], keep: int | None = None) -> None:
        slots, filled = self._slots, self._filled
        if any(isinstance(leaf, Slot) for leaf in pytree.tree_leaves((args, kwargs))):

            def call() -> object:
                return op(*filled(args), **{k: filled(v) for k, v in kwargs.items()})
        else:
            call = partial(op, *args, **kwargs)
        if keep is None:
            self._steps.append(call)
            return

        def call_and_keep() -> None:
            slots[keep] = call()

        self._steps.append(call_and_keep)

    def _filled(self, value: Any) -> Any:
        """`value` with this call's results in the place of slots."""
        if isinstance(value, Slot):
            return self._slots[value.index]
        if isinstance(value, list | tuple):
            return type(value)(self._filled(v) for v in value)
        return value


def _arguments(node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(node.args), dict(node.kwargs)


def _only_looks(op: Any) -> bool:
    """Whether an operator returns a part of what it is given: a view, an item of a tuple."""
    if not isinstance(op, torch._ops.OpOverload):
        return True
    return not op._schema.is_mutable and any(r.alias_info is not None for r in op._schema.returns)


def _memory(node: Node) -> Any:
    """Memory for the results of an operator."""
    return pytree.tree_map_only(
        torch.Tensor,
        lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype),
        node.meta["val"],
    )


def _out_variant(op: torch._ops.OpOverload) -> tuple[torch._ops.OpOverload, list[str]] | None:
    """The variant with the same arguments that writes into given memory, and the names that it gives that memory.

    Only variants with a kernel for the CPU: generated ones run the operator and copy its result.
    """
    if op.namespace != "aten" or op in _RESIZING:
        return None
    wanted = [(a.name, str(a.type)) for a in op._schema.arguments]
    packet = op.overloadpacket
    for name in packet.overloads():
        variant = getattr(packet, name)
        out = [a.name for a in variant._schema.arguments if a.is_out]
        rest = [(a.name, str(a.type)) for a in variant._schema.arguments if not a.is_out]
        if out and rest == wanted and torch._C._dispatch_has_kernel_for_dispatch_key(variant.name(), "CPU"):
            return variant, out
    return None
