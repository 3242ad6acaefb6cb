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

    for x in tree_leaves((model.args, dict(model.kwargs))):
        if isinstance(x, torch.Tensor) and x.ndim:
            return x.shape[0]
    raise UsageError("no example input has an axis to resize", where=model.name, code="E105")


def resized(model: Model, size: int) -> Model:
    """The model with every input whose first axis is the leading one cut or repeated to `size` rows."""
    import torch
    from torch.utils._pytree import tree_map

    old = leading(model)

    def resize(x: Any) -> Any:
        return _rows(x, size) if isinstance(x, torch.Tensor) and x.ndim and x.shape[0] == old else x

    args, kwargs = tree_map(resize, (model.args, dict(model.kwargs)))
    return replace(model, args=args, kwargs=kwargs, graph=None, plan=None)


def _rows(x: torch.Tensor, size: int) -> torch.Tensor:
    import torch

    return x[torch.arange(size) % x.shape[0]]
