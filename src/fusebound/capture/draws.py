"""Which calls draw random numbers, and draws as operators that make their own memory.

Eager fills a tensor (`torch.empty(n).uniform_()`, the mask of dropout, `rand_like`) in the order of its memory. The
operators `fusebound::bernoulli`, `uniform` and `normal` do the same, given the tensor's strides: they replay eager's
numbers and read no operand for its shape alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx

from fusebound.capture import replay
from fusebound.capture.encode import words

_OWN = {
    "aten.bernoulli.p": "fusebound.bernoulli.default",
    "aten.uniform.default": "fusebound.uniform.default",
    "aten.normal_functional.default": "fusebound.normal.default",
    "aten.rand_like.default": "fusebound.uniform.default",
    "aten.randn_like.default": "fusebound.normal.default",
}
"""Draws that overwrite, or only resemble, their first operand."""

_LIKE = words("aten.rand_like.default aten.randn_like.default")

_library = torch.library.Library("fusebound", "DEF")
for _schema in (
    "bernoulli(SymInt[] size, SymInt[] stride, float p=0.5, *, ScalarType dtype) -> Tensor",
    "uniform(SymInt[] size, SymInt[] stride, float low=0, float high=1, *, ScalarType dtype) -> Tensor",
    "normal(SymInt[] size, SymInt[] stride, float mean=0, float std=1, *, ScalarType dtype) -> Tensor",
):
    _library.define(_schema, tags=torch.Tag.nondeterministic_seeded)
replay.allow("fusebound")


@torch.library.impl(_library, "bernoulli", "CompositeImplicitAutograd")
def _bernoulli(
    size: Sequence[int], stride: Sequence[int], p: float = 0.5, *, dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype).bernoulli_(p)


@torch.library.impl(_library, "uniform", "CompositeImplicitAutograd")
def _uniform(
    size: Sequence[int], stride: Sequence[int], low: float = 0.0, high: float = 1.0, *, dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype).uniform_(low, high)


@torch.library.impl(_library, "normal", "CompositeImplicitAutograd")
def _normal(
    size: Sequence[int], stride: Sequence[int], mean: float = 0.0, std: float = 1.0, *, dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype).normal_(mean, std)


def makes_own_memory(node: torch.fx.Node, target: str) -> bool:
    """Whether a call is a draw that `own_memory` rewrites, so that its first operand is not read."""
    val = node.meta.get("val")
    if target not in _OWN or node.kwargs.get("generator") is not None or not isinstance(val, torch.Tensor):
        return False
    return val.device.type == "cpu" and all(isinstance(n, int) for n in (*val.shape, *val.stride()))


def own_memory(
    node: torch.fx.Node, target: str, wrote: str
) -> tuple[str, tuple[Any, ...], dict[str, Any], torch.Tensor]:
    """Target, arguments and traced result of the same draw into memory of its own.

    What the user drew in place has the strides of the operand; `wrote` is the user's own operator.
    """
    in_place = target not in _LIKE and wrote != target
    first = node.args[0]
    assert isinstance(first, torch.fx.Node)
    held: torch.Tensor = first.meta["val"] if in_place else node.meta["val"]
    rest = () if target in _LIKE else node.args[1:]
    return _OWN[target], ([*held.shape], [*held.stride()], *rest), {"dtype": held.dtype}, held


def consumes(node: torch.fx.Node) -> bool:
    """Whether a call moves the framework's generator: a drawing operator that is not switched off, or control flow
    around one."""
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return any(map(_draws_inside, _subgraphs(node)))
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    return not switched_off(op, node.args, node.kwargs)


def _subgraphs(node: torch.fx.Node) -> list[torch.fx.GraphModule]:
    owner = node.graph.owning_module
    names = [str(a.target) for a in node.all_input_nodes if a.op == "get_attr"]
    found = [owner.get_submodule(n) for n in names if owner is not None]
    return [m for m in found if isinstance(m, torch.fx.GraphModule)]


def _draws_inside(module: torch.fx.GraphModule) -> bool:
    return any(consumes(n) for n in module.graph.nodes if n.op == "call_function")


def draws_in_branches(graph: torch.fx.Graph) -> bool:
    """Whether any control flow of a graph draws."""
    return any(isinstance(n.target, torch._ops.HigherOrderOperator) and consumes(n) for n in graph.nodes)


def switched_off(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator that can draw random numbers draws none in this call."""
    if argument(op, "dropout_p", args, kwargs) == 0.0:
        return True
    return any(argument(op, flag, args, kwargs) is False for flag in ("train", "training"))


def argument(op: torch._ops.OpOverload, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """An argument of a call by name, its default filled in; None where the operator has none of that name."""
    for i, a in enumerate(op._schema.arguments):
        if a.name == name:
            return kwargs.get(name, args[i] if i < len(args) else a.default_value)
    return None
