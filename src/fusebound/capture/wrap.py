"""Plain callables as modules, which is what the framework exports."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch


class _Function(torch.nn.Module):
    """A plain callable as a module; modules that it reaches are registered, so that parameters have names."""

    def __init__(self, fn: Callable[..., Any], modules: Mapping[str, torch.nn.Module]) -> None:
        super().__init__()
        for name, m in modules.items():
            self.add_module(name, m)
        self.forward = fn if _has_signature(fn) else _variadic(fn)


def _has_signature(fn: Callable[..., Any]) -> bool:
    try:
        inspect.signature(fn)
    except (TypeError, ValueError):
        return False
    return True


def _variadic(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A Python function around a builtin, whose signature the tracer cannot read."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call


def wrap(fn: Callable[..., Any]) -> torch.nn.Module:
    """The callable as a module, with the modules of its closure, globals and `__self__` as children."""
    return _Function(fn, reached(fn))


def reached(fn: Callable[..., Any]) -> dict[str, torch.nn.Module]:
    """Modules that a function names: closure variables, globals, the object of a bound method."""
    found: dict[str, torch.nn.Module] = {}
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        found["self"] = owner
    inner = inspect.unwrap(getattr(fn, "__func__", fn))
    code = getattr(inner, "__code__", None)
    if code is not None:
        cells = dict(zip(code.co_freevars, inner.__closure__ or (), strict=False))
        for n, cell in cells.items():
            with contextlib.suppress(ValueError):  # an empty cell
                if isinstance(cell.cell_contents, torch.nn.Module):
                    found[n] = cell.cell_contents
        for n in code.co_names:
            if isinstance(inner.__globals__.get(n), torch.nn.Module):
                found[n] = inner.__globals__[n]
    return found
