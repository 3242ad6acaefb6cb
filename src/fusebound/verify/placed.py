"""Operators whose value at a special point depends in eager on its place in the tensor, since vectors and scalars at
the end, or the last value of a row, differ. The reference has what eager has at most places.

`softshrink` gives +0 in vectors and 0·x in scalars. A mean that is updated value by value is NaN once it meets an
infinity, but the infinity where that comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten


def _running(mean: torch.Tensor) -> torch.Tensor:
    """NaN for infinities."""
    return mean - (mean - mean)


def _softshrink(x: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    return _aten.softshrink.default(x, lambd) + 0.0


def _spread(op: Any) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    def call(x: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        spread, mean = op(x, *args, **kwargs)
        return spread, mean if x.numel() == mean.numel() else _running(mean)

    return call


def _normalised(op: Any) -> Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    def call(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y, mean, rstd = op(*args, **kwargs)
        return y, _running(mean), rstd

    return call


PLACED: dict[Any, Callable[..., Any]] = {
    _aten.softshrink.default: _softshrink,
    **{op: _spread(op) for p in (_aten.var_mean, _aten.std_mean) for op in (p.default, p.dim, p.correction)},
    **{op: _normalised(op) for op in (_aten.native_layer_norm.default, _aten.native_group_norm.default)},
}
"""Operators that the reference replaces."""
