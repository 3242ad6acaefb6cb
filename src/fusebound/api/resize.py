"""Example inputs at other sizes of their leading axis."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fusebound.api.model import Model
from fusebound.errors import UsageError

if TYPE_CHECKING:
    import torch


def leading(model: Model) -> int:
    """The size of the first axis of the first tensor among the example inputs; raises UsageError (E105)."""
    import torch
    from torch.utils._pytree import tree_leaves

    for x in tree_leaves((_resizable(model), dict(model.kwargs))):
        if isinstance(x, torch.Tensor) and x.ndim:
            return x.shape[0]
    raise UsageError("no example input has an axis to resize", where=model.name, code="E105")


def resized(model: Model, size: int) -> Model:
    """The model with every input whose first axis is the leading one cut or repeated to `size` rows; parameters and
    buffers of a saved program stay."""
    import torch
    from torch.utils._pytree import tree_map

    old = leading(model)

    def resize(x: Any) -> Any:
        return _rows(x, size) if isinstance(x, torch.Tensor) and x.ndim and x.shape[0] == old else x

    own = {id(x) for x in _resizable(model)}
    args = tuple(tree_map(resize, x) if id(x) in own else x for x in model.args)
    return replace(model, args=args, kwargs=tree_map(resize, dict(model.kwargs)), graph=None, plan=None)


def _resizable(model: Model) -> list[Any]:
    """The positional arguments, of a saved graph only those that its function took."""
    if model.graph is None:
        return list(model.args)
    return [x for x, i in zip(model.args, model.graph.given, strict=True) if i.kind == "user"]


def _rows(x: torch.Tensor, size: int) -> torch.Tensor:
    import torch

    return x[torch.arange(size) % x.shape[0]]
