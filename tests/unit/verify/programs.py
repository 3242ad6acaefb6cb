"""Captured functions for the verifier's own tests, straight from torch.export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram


@dataclass(frozen=True)
class Traced:
    """A stand-in for `capture.torch.Captured`: the function and its undecomposed program."""

    fn: Callable[..., Any]
    program: ExportedProgram


class _Wrapped(torch.nn.Module):
    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def trace(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Traced:
    """Export `fn` for these arguments."""
    module = fn if isinstance(fn, torch.nn.Module) else _Wrapped(fn)
    return Traced(fn, torch.export.export(module, args, kwargs, strict=False))
