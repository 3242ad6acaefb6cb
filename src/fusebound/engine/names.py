"""Names in code: which attributes and variables a function mentions, itself or through methods that it calls."""

from __future__ import annotations

import dis
import functools
import itertools
import types
from collections.abc import Iterator

import torch

_LIBRARY = (
    "torch", "builtins", "math", "numpy", "functools", "operator", "typing", "itertools", "logging", "fusebound",
)  # fmt: skip

_UNCALLED = frozenset(("__init__", "__new__", "__repr__", "__eq__", "__hash__"))
"""Special methods that a use of an object does not call: a dataclass mentions every field in them."""


@functools.lru_cache(maxsize=4096)
def special(cls: type) -> frozenset[str]:
    """Special methods of the user's, which code calls without naming them: `x[i]`, `x * 2`, `with x`."""
    own = (vars(base).items() for base in cls.__mro__ if not is_library(base.__module__))
    named = (n for n, f in itertools.chain.from_iterable(own) if isinstance(f, types.FunctionType))
    return frozenset(n for n in named if n.startswith("__") and n.endswith("__")) - _UNCALLED


def is_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARY


@functools.lru_cache(maxsize=4096)
def mentioned(code: types.CodeType) -> frozenset[str]:
    """Names of attributes in a function's code, nested functions included; strings too, which some function further on
    may give to `getattr`."""
    names = (n for c in _codes(code) for n in (*c.co_names, *c.co_consts) if isinstance(n, str))
    return frozenset(n for n in names if n.isidentifier())


def asked(f: types.FunctionType) -> frozenset[str]:
    """Names of attributes that a function's code may ask of a value: all but those of a global module, `torch.add`."""
    loaded = _loaded(f.__code__)
    return frozenset(n for root, n in loaded if not isinstance(f.__globals__.get(root), types.ModuleType))


@functools.lru_cache(maxsize=4096)
def _loaded(code: types.CodeType) -> frozenset[tuple[str, str]]:
    """Attributes that code loads, each with the global variable that the chain begins with: empty for other values."""
    found: set[tuple[str, str]] = set()
    for c in _codes(code):
        root = ""
        for i in dis.get_instructions(c):
            if i.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                found.add((root, i.argval))
            elif i.opname != "EXTENDED_ARG":
                root = i.argval if i.opname == "LOAD_GLOBAL" else ""
    return frozenset(found)


@functools.lru_cache(maxsize=4096)
def variables(code: types.CodeType) -> frozenset[str]:
    """Names of the global variables that a function's code uses, nested functions included; builtins are among them."""
    instructions = itertools.chain.from_iterable(map(dis.get_instructions, _codes(code)))
    return frozenset(i.argval for i in instructions if i.opname.endswith(("_GLOBAL", "_NAME")))


@functools.lru_cache(maxsize=4096)
def compares(code: types.CodeType) -> bool:
    """Whether code asks which object a value is: by `id`, or by `is` with anything but a constant such as None."""
    if "id" in variables(code):
        return True
    steps = itertools.chain.from_iterable(itertools.pairwise(dis.get_instructions(c)) for c in _codes(code))
    return any(i.opname == "IS_OP" and before.opname != "LOAD_CONST" for before, i in steps)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from _codes(c)


@functools.lru_cache(maxsize=4096)
def reachable(cls: type, names: frozenset[str]) -> frozenset[str]:
    """`names`, and those that the methods of a class mention that are called by them, directly or not.

    Methods that others hide count too: `super()` may call them.
    """
    found = set(names)
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        for base in filter(_is_followed, cls.__mro__):
            f = vars(base).get(name)
            f = f.fget if isinstance(f, property) else getattr(f, "__func__", f)
            if isinstance(f, types.FunctionType):
                fresh = mentioned(f.__code__) - found
                found |= fresh
                waiting.extend(fresh)
    return frozenset(found)


def _is_followed(cls: type) -> bool:
    """Whether the methods of a class are looked into: the user's own, and those of the framework's modules, which
    read attributes such as `eps`."""
    if cls is torch.nn.Module:
        return False
    return issubclass(cls, torch.nn.Module) or not is_library(cls.__module__)
