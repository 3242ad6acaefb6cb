"""Python state that a function can reach, and what became of it: the basis of the tracing traps.

Tracing runs the user's Python once. What that run does to closures, globals, module attributes, containers
and unregistered tensors is no part of the graph, so it must be seen, and undone.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import inspect
import linecache
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from fusebound.capture.source import is_own_file
from fusebound.ir.graph import Source

_DEPTH = 4
_MANY = 20_000
_COPY_LIMIT = 256 << 20
_MODULE_OWN = frozenset(torch.nn.Module().__dict__) - {"training"} | {"forward"}
_MISSING = object()
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


@dataclass(frozen=True, slots=True)
class Change:
    """Something that tracing changed. `tensor` tells a mutated tensor from a Python side effect."""

    name: str
    tensor: bool
    source: Source


@dataclass(frozen=True, slots=True)
class _Slot:
    """One place: how to read it, how to write it back, and what it held."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]
    held: Any
    contents: Any


class Watch:
    """A picture of everything that `fn` reaches; `changes` compares, `undo` puts it back.

    Without `copies`, tensors are only watched, and `undo` cannot restore them.
    """

    def __init__(self, fn: Callable[..., Any], *, copies: bool = True) -> None:
        self._slots: list[_Slot] = []
        self._tables: list[tuple[str, dict[str, Any], frozenset[str]]] = []
        self._copies = copies
        self._tensors: list[tuple[str, torch.Tensor, int, torch.Tensor | None]] = []
        self._codes: list[types.CodeType] = []
        self._seen: set[int] = set()
        self._copied = 0
        self.optimizer = False
        self.iterator = ""
        self._visit("self" if isinstance(fn, torch.nn.Module) else "the function", fn, _DEPTH)

    @property
    def steps(self) -> bool:
        """Whether the code that was seen may step an optimizer: a change of all its tensors, best never begun."""
        return self.optimizer and any("step" in code.co_names for code in self._codes)

    def changes(self) -> list[Change]:
        """What differs from the picture: tensors first."""
        names = [slot.name for slot in self._slots if _differs(slot)]
        for label, table, keys in self._tables:
            names += [f"{label}.{k}" for k in table if k not in keys and k not in _MODULE_OWN]
        return self.mutated() + [Change(n, False, self._line(n, store=True)) for n in names]

    def mutated(self) -> list[Change]:
        """Tensors that were written to."""
        return [
            Change(name, True, self._line(name, store=False))
            for name, t, version, _ in self._tensors
            if t._version != version
        ]

    def undo(self) -> list[str]:
        """Put everything back; returns the names of tensors that were too large to copy."""
        lost: list[str] = []
        for _, table, keys in self._tables:
            for k in [k for k in table if k not in keys and k not in _MODULE_OWN]:
                del table[k]
        for slot in self._slots:
            if _differs(slot):
                with contextlib.suppress(Exception):
                    _restore(slot)
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

    def _visit(self, name: str, x: Any, depth: int) -> None:
        if depth < 0 or isinstance(x, _PLAIN) or id(x) in self._seen or len(self._seen) > _MANY:
            return
        self._seen.add(id(x))
        match x:
            case torch.Tensor():
                self._tensor(name, x)
            case torch.nn.Module():
                self._module(name, x)
            case types.MethodType():
                self._visit(name, x.__self__, depth)
                self._function(x.__func__, depth)
            case types.FunctionType():
                self._function(inspect.unwrap(x), depth)
            case list() | tuple() | dict() | set():
                self._container(name, x, depth)
            case _ if hasattr(x, "func") and hasattr(x, "keywords"):  # functools.partial
                self._visit(name, x.func, depth)
                self._visit(name, (x.args, x.keywords), depth)
            case Iterator():
                self.iterator = name
            case torch.optim.Optimizer():
                self.optimizer = True
                self._attributes(name, x, _DEPTH)  # its parameters are that deep
            case _ if _is_plain_object(x):
                self._attributes(name, x, depth - 1)
            case _:
                pass

    def _tensor(self, name: str, t: torch.Tensor) -> None:
        if t.is_inference():
            return
        small = self._copies and t.layout == torch.strided and self._copied + t.nbytes <= _COPY_LIMIT
        if small:
            self._copied += t.nbytes
        self._tensors.append((name, t, t._version, t.detach().clone() if small else None))

    def _module(self, name: str, root: torch.nn.Module) -> None:
        """Attributes of every submodule; parameters and buffers are inputs of the graph, not hidden state."""
        self._seen.update(id(t) for t in (*root.parameters(), *root.buffers()))
        for path, m in root.named_modules():
            label = f"{name}.{path}" if path else name
            self._tables.append((label, m.__dict__, frozenset(m.__dict__)))
            for key, value in list(m.__dict__.items()):
                if key not in _MODULE_OWN:
                    self._slot(f"{label}.{key}", *_entry(m.__dict__, key), value)
                    if isinstance(value, torch.Tensor | list | dict | set | tuple):
                        self._visit(f"{label}.{key}", value, 2)
            if id(type(m)) not in self._seen:
                self._seen.add(id(type(m)))
                self._function(inspect.unwrap(type(m).forward), _DEPTH - 1)

    def _attributes(self, name: str, x: Any, depth: int) -> None:
        self._tables.append((name, vars(x), frozenset(vars(x))))
        for key, value in list(vars(x).items()):
            self._slot(f"{name}.{key}", *_entry(vars(x), key), value)
            self._visit(f"{name}.{key}", value, depth)

    def _container(self, name: str, x: Any, depth: int) -> None:
        if isinstance(x, list | dict | set):
            self._slot(name, lambda: x, lambda _: None, x)
        for item in list(x.values() if isinstance(x, dict) else x)[:1000]:
            self._visit(name, item, depth - 1)

    def _function(self, fn: Any, depth: int) -> None:
        """Closure cells, globals that the code names, defaults, and the functions called by name."""
        code = getattr(fn, "__code__", None)
        if code is None:
            return
        if not is_own_file(code.co_filename):
            return  # caches and registries of installed packages are their own business
        self._codes.extend(_nested(code))
        for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=False):
            with contextlib.suppress(ValueError):  # an empty cell
                value = cell.cell_contents
                self._slot(
                    name,
                    lambda c=cell: c.cell_contents,
                    lambda v, c=cell: setattr(c, "cell_contents", v),
                    value,
                )
                self._visit(name, value, depth - 1)
        names = {n for c in _nested(code) for n in c.co_names}
        for name in sorted(names - set(dir(builtins))):
            value = fn.__globals__.get(name, _MISSING)
            self._slot(name, *_entry(fn.__globals__, name), value)
            if value is not _MISSING and not isinstance(value, types.ModuleType | type):
                self._visit(name, value, depth - 1)
        for value in fn.__defaults__ or ():
            self._visit("a default argument", value, depth - 1)

    def _slot(self, name: str, read: Callable[[], Any], write: Callable[[Any], None], value: Any) -> None:
        contents = None
        if isinstance(value, list | set):
            contents = list(value)
        elif isinstance(value, dict):
            contents = dict(value)
        self._slots.append(_Slot(name, read, write, value, contents))

    def _line(self, name: str, *, store: bool) -> Source:
        """The user's line that stores (or else mentions) the last part of `name`."""
        leaf = name.rpartition(".")[2]
        mentions: list[tuple[bool, types.CodeType, int]] = []
        for code in self._codes:
            line = code.co_firstlineno
            for ins in dis.get_instructions(code):
                line = ins.positions.lineno if ins.positions and ins.positions.lineno else line
                if ins.argval == leaf:
                    mentions.append((ins.opname.startswith("STORE") == store, code, line))
        if not mentions:
            return Source()
        _, code, line = next((m for m in mentions if m[0]), mentions[0])
        return Source(code.co_filename, line, linecache.getline(code.co_filename, line).strip())


def _entry(table: dict[str, Any], key: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def write(value: Any) -> None:
        if value is _MISSING:
            table.pop(key, None)
        else:
            table[key] = value

    return lambda: table.get(key, _MISSING), write


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from _nested(c)


def _is_plain_object(x: Any) -> bool:
    """An instance of a class of the user's own code."""
    if isinstance(x, type | types.ModuleType) or not hasattr(x, "__dict__"):
        return False
    try:
        return is_own_file(inspect.getfile(type(x)))
    except (TypeError, OSError):
        return False


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, _PLAIN) and type(a) is type(b) and (a == b or a != a))


def _differs(slot: _Slot) -> bool:
    now = slot.read()
    if not _same(now, slot.held):
        return True
    match slot.contents:
        case list() if isinstance(now, set):
            return now != set(slot.contents)
        case list():
            return len(now) != len(slot.contents) or not all(map(_same, now, slot.contents))
        case dict():
            return now.keys() != slot.contents.keys() or not all(_same(now[k], slot.contents[k]) for k in now)
        case _:
            return False


def _restore(slot: _Slot) -> None:
    held = slot.held
    match slot.contents:
        case list() if isinstance(held, set):
            held.clear()
            held.update(slot.contents)
        case list():
            held[:] = slot.contents
        case dict():
            held.clear()
            held.update(slot.contents)
        case _:
            pass
    slot.write(held)
