"""Python state that a function can reach, and what became of it: the basis of the tracing traps.

Tracing runs the user's Python once. What that run does to closures, globals, module attributes, containers
and unregistered tensors is no part of the graph, so it must be seen, and undone.
"""

from __future__ import annotations

import builtins
import contextlib
import contextvars
import dis
import functools
import inspect
import linecache
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from fusebound.capture.places import MISSING, PLAIN, Access, Place, attribute, entry, itself, place
from fusebound.capture.source import is_own_file
from fusebound.capture.wrap import unwrapped
from fusebound.ir.graph import Source

_MANY = 20_000
"""Values that are looked at: a function that reaches more has its nearest ones watched."""
_COPY_LIMIT = 256 << 20
"""Bytes of tensors and arrays that are copied, so that a change can be undone."""
_MODULE_OWN = frozenset(torch.nn.Module().__dict__) - {"training"} | {"forward"}

_REGISTERED = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True, slots=True)
class Change:
    """Something that tracing changed. `tensor` tells a mutated tensor from a Python side effect."""

    name: str
    tensor: bool
    source: Source


def _new(table: dict[str, Any], keys: frozenset[str]) -> list[str]:
    """Names that were not there before; TorchDynamo, which traces branches, marks tensors with its own."""
    return [k for k in table if k not in keys and k not in _MODULE_OWN and not k.startswith("_dynamo_")]


class Watch:
    """A picture of everything that `fn` reaches; `changes` compares, `undo` puts it back.

    `given` holds its arguments by name: their containers, and what their tensors carry, are in the picture; their
    numbers may change. The same holds of parameters and buffers.
    Without `copies`, tensors are only watched, and `undo` cannot restore them.
    """

    def __init__(
        self, fn: Callable[..., Any], given: Mapping[str, Any] | None = None, *, copies: bool = True
    ) -> None:
        self._places: list[Place] = []
        self._tables: list[tuple[str, dict[str, Any], frozenset[str]]] = []
        self._copies = copies
        self._tensors: list[tuple[str, torch.Tensor, int, torch.Tensor | None]] = []
        self._codes: list[types.CodeType] = []
        self._seen: set[int] = set()
        self._copied = 0
        self.optimizer = False
        self.iterator = ""
        self.variables: list[contextvars.ContextVar[Any]] = []
        first = ("self" if isinstance(fn, torch.nn.Module) else "the function", fn)
        self._waiting = deque[tuple[str, Any]]([first])
        for name, value in (given or {}).items():
            for t in tree_leaves(value):
                if isinstance(t, torch.Tensor):
                    self._carried(name, t)
                    self._seen.add(id(t))
            self._waiting.append((name, value))
        while self._waiting and len(self._seen) <= _MANY:
            self._visit(*self._waiting.popleft())

    @property
    def steps(self) -> bool:
        """Whether the code that was seen may step an optimizer: a change of all its tensors, best never begun."""
        return self.optimizer and any("step" in code.co_names for code in self._codes)

    def changes(self) -> list[Change]:
        """What differs from the picture: tensors first."""
        names = [f"{label}.{k}" for label, table, keys in self._tables for k in _new(table, keys)]
        names += [p.name for p in self._places if p.differs()]
        return self.mutated() + [Change(n, False, self.line(n)) for n in names]

    def mutated(self) -> list[Change]:
        """Tensors that were written to."""
        return [
            Change(name, True, self.line(name, store=False))
            for name, t, version, _ in self._tensors
            if t._version != version
        ]

    def holds(self, container: object) -> bool:
        """Whether a list, dict or the like was there when the picture was taken."""
        return any(p.held is container for p in self._places)

    def given_other_memory(self) -> Change:
        """The change that `x.data = …` makes to an argument."""
        return Change("the memory behind an argument", False, self.line("data"))

    def undo(self) -> list[str]:
        """Put everything back; returns the names of tensors that were too large to copy."""
        lost: list[str] = []
        for _, table, keys in self._tables:
            for k in _new(table, keys):
                del table[k]
        for p in self._places:
            if p.differs():
                with contextlib.suppress(Exception):
                    p.restore()
        for name, t, version, copy in self._tensors:
            if t._version == version:
                continue
            if copy is None:
                lost.append(name)
            else:
                with torch.no_grad():
                    t.copy_(copy)
        return lost

    # -- the walk

    def _visit(self, name: str, x: Any) -> None:
        x = unwrapped(x)
        if isinstance(x, PLAIN) or id(x) in self._seen:
            return
        self._seen.add(id(x))
        match x:
            case torch.Tensor():
                self._tensor(name, x)
            case torch.nn.Module():
                self._module(name, x)
            case types.MethodType():
                self._waiting.append((name, x.__self__))
                self._function(x.__func__)
            case types.FunctionType():
                self._function(inspect.unwrap(x))
            case list() | tuple() | dict() | set() | deque():
                self._container(name, x)
            case np.ndarray() | bytearray():
                self._buffer(name, x)
            case functools.partial() | functools.partialmethod():
                self._waiting += ((name, x.func), (name, x.args), (name, x.keywords))
            case contextvars.ContextVar():
                self.variables.append(x)
            case Iterator():
                self.iterator = name
            case torch.optim.Optimizer():
                self.optimizer = True
                self._attributes(name, x)
            case type() if _is_own(x):
                self._class(x)
            case _ if _is_plain_object(x):
                self._attributes(name, x)
                self._waiting.append((type(x).__name__, type(x)))
            case _:
                pass

    def _tensor(self, name: str, t: torch.Tensor) -> None:
        if t.is_inference():
            return
        small = self._copies and t.layout == torch.strided and self._copied + t.nbytes <= _COPY_LIMIT
        if small:
            self._copied += t.nbytes
        self._tensors.append((name, t, t._version, t.detach().clone() if small else None))
        self._carried(name, t)

    def _carried(self, name: str, t: torch.Tensor) -> None:
        """What a tensor carries besides its numbers: a gradient, flags, hooks, attributes of the user's."""
        for key in ("grad", "requires_grad", "_backward_hooks"):
            self._look(f"{name}.{key}", attribute(t, key), getattr(t, key))
        table: dict[str, Any] = vars(t)
        self._tables.append((name, table, frozenset(table)))
        if not isinstance(t, FakeTensor):  # those of a fake one are the framework's
            for key in _new(table, frozenset()):
                self._look(f"{name}.{key}", entry(table, key), table[key])

    def _module(self, name: str, root: torch.nn.Module) -> None:
        """Attributes of every submodule, and which parameters, buffers, children and hooks it has; the numbers of
        parameters and buffers are inputs of the graph, not hidden state."""
        for key, t in (*root.named_parameters(), *root.named_buffers()):
            self._carried(f"{name}.{key}", t)
            self._seen.add(id(t))
        for path, m in root.named_modules():
            label = f"{name}.{path}" if path else name
            self._tables.append((label, m.__dict__, frozenset(m.__dict__)))
            for key, value in list(m.__dict__.items()):
                if key not in _MODULE_OWN:
                    self._look(f"{label}.{key}", entry(m.__dict__, key), value)
                elif isinstance(value, dict | set):
                    self._registry(label, key, value)
            for hook in (*m._forward_pre_hooks.values(), *m._forward_hooks.values()):
                self._waiting.append((f"a hook of {label}", hook))
            if id(type(m)) not in self._seen:
                self._seen.add(id(type(m)))
                self._function(inspect.unwrap(type(m).forward))
                if _is_own(type(m)):
                    self._class(type(m))

    def _registry(self, label: str, key: str, held: Any) -> None:
        """What a module registers: an entry of `_parameters`, `_buffers` and `_modules` is an attribute to the user."""
        if key in _REGISTERED:
            self._tables.append((label, held, frozenset(held)))
            self._places += (Place(f"{label}.{k}", *entry(held, k), v, None) for k, v in held.items())
        self._places.append(place(f"{label}.{key}", itself(held), held))

    def _attributes(self, name: str, x: Any) -> None:
        """Entries of an object's dictionary, and its slots."""
        table = getattr(x, "__dict__", {})
        self._tables.append((name, table, frozenset(table)))
        for key, value in list(table.items()):
            self._look(f"{name}.{key}", entry(table, key), value)
        for key in _slots_of(type(x)):
            self._look(f"{name}.{key}", attribute(x, key), getattr(x, key, MISSING))

    def _class(self, cls: type) -> None:
        """Attributes and methods of a class of the user's own code, and of those that it inherits from."""
        for base in filter(_is_own, cls.__mro__):
            for key, value in list(vars(base).items()):
                f = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if isinstance(f, types.FunctionType):
                    self._waiting.append((key, f))
                elif not key.startswith("__") and not isinstance(value, types.MemberDescriptorType):
                    self._look(f"{base.__name__}.{key}", attribute(base, key), value)

    def _look(self, name: str, access: Access, value: Any) -> None:
        """Remember a place, and follow what it holds: a container or buffer is a place of its own."""
        self._places.append(Place(name, *access, value, None))
        self._waiting.append((name, value))

    def _container(self, name: str, x: Any) -> None:
        if not isinstance(x, tuple):
            self._places.append(place(name, itself(x), x))
        items: Iterable[Any] = x.values() if isinstance(x, dict) else x
        self._waiting += ((name, item) for item in islice(items, _MANY))

    def _buffer(self, name: str, x: Any) -> None:
        """Numbers in memory: an array of numpy, a bytearray."""
        size = x.nbytes if isinstance(x, np.ndarray) else len(x)
        if self._copied + size <= _COPY_LIMIT:
            self._copied += size
            self._places.append(place(name, itself(x), x))

    def _function(self, fn: Any) -> None:
        """Closure cells, globals that the code names, attributes, defaults, and the functions called by name."""
        code = getattr(fn, "__code__", None)
        if code is None:
            return
        if not is_own_file(code.co_filename):
            return  # caches and registries of installed packages are their own business
        self._codes.extend(_nested(code))
        for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=False):
            with contextlib.suppress(ValueError):  # an empty cell
                self._look(name, attribute(cell, "cell_contents"), cell.cell_contents)
        names = {n for c in _nested(code) for n in c.co_names}
        for name in sorted(names - set(dir(builtins))):
            self._look(name, entry(fn.__globals__, name), fn.__globals__.get(name, MISSING))
        self._attributes(fn.__name__, fn)
        self._waiting += (("a default argument", value) for value in fn.__defaults__ or ())

    def line(self, name: str, *, store: bool = True) -> Source:
        """The user's line that stores (or else mentions) the last part of `name`."""
        leaf = name.rpartition(".")[2]
        mentions: list[tuple[bool, types.CodeType, int]] = []
        for code in self._codes:
            line = code.co_firstlineno
            for ins in dis.get_instructions(code):
                line = ins.positions.lineno if ins.positions and ins.positions.lineno else line
                if ins.argval in (leaf, f"{leaf}_"):  # `requires_grad_` sets `requires_grad`
                    mentions.append((ins.opname.startswith("STORE") == store, code, line))
        if not mentions:
            return Source()
        _, code, line = next((m for m in mentions if m[0]), mentions[0])
        return Source(code.co_filename, line, linecache.getline(code.co_filename, line).strip())


def _slots_of(cls: type) -> Iterator[str]:
    for base in filter(_is_own, cls.__mro__):
        yield from (k for k, v in vars(base).items() if isinstance(v, types.MemberDescriptorType))


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from _nested(c)


def _is_plain_object(x: Any) -> bool:
    """An instance of a class of the user's own code, or a bare namespace."""
    if isinstance(x, type | types.ModuleType):
        return False
    return _is_own(type(x)) or isinstance(x, types.SimpleNamespace)


def _is_own(cls: type) -> bool:
    """A class of the user's own code."""
    try:
        return is_own_file(inspect.getfile(cls))
    except (TypeError, OSError):
        return False
