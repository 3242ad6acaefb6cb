"""Plain callables as modules, which is what the framework exports."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from fusebound.capture.source import is_own_file
from fusebound.errors import UsageError


class _Function(torch.nn.Module):
    """A plain callable as a module; modules that it reaches are registered, so that parameters have names."""

    def __init__(self, fn: Callable[..., Any], modules: Mapping[str, torch.nn.Module]) -> None:
        super().__init__()
        for name, m in modules.items():
            self.add_module(name, m)
        self.forward = fn if _has_signature(fn) else _variadic(fn)


class Numbered:
    """A function that takes 0-d float64 tensors where the user's takes floats, at some positions, and reads them:
    one program for all values of them."""

    def __init__(self, fn: Callable[..., Any], places: Sequence[int]) -> None:
        self.fn, self.places = fn, tuple(places)
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)
        self.__signature__ = signature_of(fn)

    def __call__(self, *args: Any) -> Any:
        given = list(args)
        for i in self.places:
            given[i] = given[i].item()
        return self.fn(*given)


def _has_signature(fn: Callable[..., Any]) -> bool:
    return signature_of(fn) is not None


def signature_of(fn: Callable[..., Any]) -> inspect.Signature | None:
    """What a callable or module takes; None for a builtin that does not say."""
    try:
        return inspect.signature(_called(fn))
    except (TypeError, ValueError):
        return None


def _called(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn.forward if isinstance(fn, torch.nn.Module) else fn


def check_arguments(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise UsageError (E120), at the function's own line, for arguments that it cannot be called with."""
    takes = signature_of(fn)
    if takes is None:
        return
    try:
        takes.bind(*args, **kwargs)
    except TypeError as why:
        name = getattr(fn, "__name__", type(fn).__name__)
        what = f"{name}({', '.join(takes.parameters)}) cannot be called with these arguments: {why}"
        raise UsageError(what, where=defined_at(fn), code="E120") from None


def named(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of the parameters; by number, for a builtin that does not say."""
    takes = signature_of(fn)
    if takes is None:
        return {**{f"argument {i}": x for i, x in enumerate(args)}, **kwargs}
    return dict(takes.bind(*args, **kwargs).arguments)


def defined_at(fn: Callable[..., Any]) -> str:
    """File and line where a function, or a module's `forward`, begins; empty for what has no Python code."""
    code = getattr(inspect.unwrap(getattr(_called(fn), "__func__", _called(fn))), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def unwrapped(fn: Any) -> Any:
    """The user's function behind one that this package has compiled; anything else as it is."""
    while type(fn).__module__.startswith("fusebound.") and hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    return fn


def _variadic(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A Python function around a builtin, whose signature the tracer cannot read."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call


def wrap(fn: Callable[..., Any]) -> torch.nn.Module:
    """The callable as a module, with the modules that it reaches as children."""
    return _Function(fn, reached(fn))


def reached(fn: Callable[..., Any]) -> dict[str, torch.nn.Module]:
    """Modules that a function names, itself or through the functions that it names: variables of its closure,
    globals, the object of a bound method."""
    found: dict[str, torch.nn.Module] = {}
    _reach(fn, found, set())
    return found


def _reach(fn: Any, found: dict[str, torch.nn.Module], seen: set[int]) -> None:
    fn = unwrapped(fn)
    if id(fn) in seen:
        return
    seen.add(id(fn))
    if isinstance(fn, functools.partial):
        _reach(fn.func, found, seen)
        return
    if isinstance(fn, Numbered):
        _reach(fn.fn, found, seen)
        return
    if isinstance(fn, torch.nn.Module):
        _add("self", fn, found)
        return
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        _add("self", owner, found)
    for name, held in _named(inspect.unwrap(getattr(fn, "__func__", fn))):
        value = unwrapped(held)
        if isinstance(value, torch.nn.Module):
            _add(name, value, found)
        elif isinstance(value, types.FunctionType | types.MethodType | functools.partial):
            _reach(value, found, seen)


def _named(fn: Any) -> Iterator[tuple[str, Any]]:
    """Closure variables, and globals that the code names, of a function of the user's own code."""
    code = getattr(fn, "__code__", None)
    if code is None or not is_own_file(code.co_filename):
        return
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):  # an empty cell
            yield name, cell.cell_contents
    for name in code.co_names:
        if name in fn.__globals__:
            yield name, fn.__globals__[name]


def _add(name: str, module: torch.nn.Module, found: dict[str, torch.nn.Module]) -> None:
    """Under its own name, made unlike the attributes that every module has."""
    if any(m is module for m in found.values()):
        return
    while name in found or hasattr(torch.nn.Module, name):
        name += "_"
    found[name] = module
