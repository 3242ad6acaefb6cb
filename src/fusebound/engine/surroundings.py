"""What a function can reach besides its arguments: everything that tracing bakes in and that may change.

Places are watched, not guessed: where something cannot be watched, `beyond` says so and the call runs eagerly.
"""

from __future__ import annotations

import array
import contextvars
import ctypes
import functools
import io
import operator
import queue
import random
import sys
import threading
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, KeysView, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fusebound.capture.wrap import Numbered, reached, unwrapped
from fusebound.engine.keys import constant_key, tensor_key
from fusebound.engine.names import asked, compares, is_library, mentioned, reachable, special, variables
from fusebound.engine.places import MANY, MISSING, Identity, Surroundings
from fusebound.runtime.private import global_hooks, tensor_check

_BYTES = 1 << 16
"""Arrays of numpy up to this size are watched by contents: numbers that are read from them become constants."""
_BY_NAME = frozenset(("globals", "eval", "exec"))
"""Builtins that read variables which the code does not name."""
_LOOKS_UP = frozenset(("getattr", "hasattr", "attrgetter", "vars", "__dict__"))
"""With these, a string in code may be the name of an attribute."""
_UNSHARED = frozenset((
    "storage_offset", "storage", "untyped_storage", "_typed_storage", "is_shared", "is_pinned", "_cdata",
    "_base", "_is_view", "_version", "output_nr", "is_leaf", "retains_grad",
    "grad", "_grad", "grad_fn", "_grad_fn", "grad_dtype", "_backward_hooks", "_post_accumulate_grad_hooks",
))  # fmt: skip
"""What a tensor says of its memory and its gradient: tracing bakes it in, and calls of one kind need not share it."""
_OF_TENSORS = frozenset(dir(torch.Tensor))
_UNSEEN = (
    threading.local, memoryview, array.array, ctypes.Array, ctypes.Structure, ctypes.Union,
    ctypes._SimpleCData, random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator,
    queue.Queue, queue.SimpleQueue, io.IOBase,
)  # fmt: skip
"""Objects whose contents change without a trace, at every use, or are of one thread."""
_GLOBAL_GENERATORS = frozenset((id(random._inst), id(np.random.mtrand._rand)))
"""Those of Python and numpy: tracing itself looks whether they are drawn from."""
_FORWARD = frozenset(("forward",))
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))


def surroundings(fn: Callable[..., Any]) -> Surroundings:
    """Closure variables, globals, defaults, attributes of modules and objects, and the same of functions called."""
    roots = [fn] if isinstance(fn, torch.nn.Module) else list(reached(fn).values())
    inputs = frozenset(id(m) for root in roots for m in root.modules())
    found = Surroundings()
    if any(global_hooks()):
        found.beyond = "hooks run around every module, those that tracing makes too"
    walk = _Walk(found, [(fn, frozenset())], inputs)
    while walk.waiting and not walk.found.beyond:
        walk.follow(*walk.waiting.pop())
    walk.kinds_of_tensors()
    walk.asked_of_tensors()
    return walk.found


@dataclass(slots=True)
class _Walk:
    """`waiting` holds values to follow, each with the attributes that the code which holds it mentions.

    `inputs` are the modules whose parameters are inputs of the graph, fetched at every call; those of others, in a list
    or an object, are constants of it.
    """

    found: Surroundings
    waiting: list[tuple[Any, frozenset[str]]]
    inputs: frozenset[int]
    seen: dict[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])
    classes: set[tuple[type, frozenset[str]]] = field(default_factory=set[tuple[type, frozenset[str]]])
    places: int = 0
    asked: set[str] = field(default_factory=set[str])
    quoted: set[str] = field(default_factory=set[str])
    looks_up: bool = False
    state: list[torch.Tensor] = field(default_factory=list[torch.Tensor])

    def asked_of_tensors(self) -> None:
        """Attributes that code may ask of an argument: some it has from its user alone, some calls need not share."""
        names = self.asked | (self.quoted if self.looks_up else frozenset[str]())
        if unshared := names & _UNSHARED:
            self.found.beyond = (
                self.found.beyond or f"it asks for {min(unshared)}, which calls of one kind need not share"
            )
        self.found.asked = own = frozenset(names - _OF_TENSORS)
        carried = [vars(t) for t in self.state] if own else []
        if any(not own.isdisjoint(table) for table in carried):
            self.found.beyond = "a parameter or buffer carries an attribute that code may ask for"
        elif carried:
            self.found.watch("all(map({own}.isdisjoint, {carried}))", own=own, carried=carried)

    def kinds_of_tensors(self) -> None:
        """A tensor may change in place: `resize_`, `requires_grad_`."""
        if tensors := self.found.tensors:
            if (check := tensor_check(tensors)) is not None:
                self.found.watch("{check}(*{tensors})", check=check, tensors=tensors)
            else:
                held = [tensor_key(t) for t in tensors]
                self.found.watch(
                    "[*map({key}, {tensors})] == {held}", key=tensor_key, tensors=tensors, held=held
                )

    def absent(self, table: KeysView[str], names: frozenset[str]) -> None:
        """Names that code mentions and that are not there: one may appear, and hide another of its class or module."""
        if missing := frozenset(n for n in names if n not in table):
            self.found.parts.append(missing)
            self.found.watch("{table}.isdisjoint({missing})", table=table, missing=missing)

    def entry(self, table: dict[Any, Any], name: Any, names: frozenset[str]) -> None:
        """An entry of a dictionary: a global, an attribute."""
        x = table.get(name, MISSING)
        self.found.tables.append(table)
        self.found.keys.append(name)
        self.found.values.append(x)
        self._held(x, names)

    def place(self, read: Callable[[], Any], names: frozenset[str]) -> None:
        """Any other place."""
        x = read()
        self.found.watch("{read}() is {held}", read=read, held=x)
        self._held(x, names)

    def _held(self, x: Any, names: frozenset[str]) -> None:
        self.places += 1
        if self.places > MANY:
            self.found.beyond = f"it reaches more than {MANY} values, which may change unseen"
            return
        self.found.parts.append(constant_key(x) or Identity(x))
        if isinstance(x, torch.Tensor):
            self.found.parts.append(tensor_key(x))
            self.found.grads |= x.requires_grad
            self.found.tensors.append(x)
        self.waiting.append((x, names))

    def follow(self, x: Any, names: frozenset[str]) -> None:
        """Watch the places that a value leads to."""
        x = unwrapped(x)
        known = self.seen.get(id(x))
        if constant_key(x) is not None or (known is not None and names <= known):
            return
        self.seen[id(x)] = names | (known or frozenset())
        match x:
            case torch.Tensor():
                self._named(vars(x), names)
            case torch.nn.Module():
                if known is None:
                    self._module(x)
                self._attributes(x, names)
            case types.FunctionType():
                if known is None:
                    self._function(x)
                self._named(vars(x), names)
            case types.MethodType():
                self.waiting += ((x.__self__, mentioned(x.__func__.__code__)), (x.__func__, names))
            case types.BuiltinMethodType() if not isinstance(x.__self__, types.ModuleType):
                self.waiting.append((x.__self__, names))
            case Numbered():
                self.waiting.append((x.fn, names))
            case functools.partial():
                self.waiting += ((x.func, names), (x.args, names), (x.keywords, names))
            case dict():
                own: Any = OrderedDict if isinstance(x, OrderedDict) else dict
                self._items(functools.partial(own.keys, x), functools.partial(own.values, x), names)
                self._as_object(x, names)
            case types.MappingProxyType():
                self._items(x.keys, x.values, names)
            case _ if isinstance(x, _VIEWS):
                self.waiting.append((x.mapping, names))
            case list() | tuple() | set() | frozenset() | deque():
                self._elements(x, names)
                self._as_object(x, names)
            case types.ModuleType():
                if not is_library(x.__name__):
                    self._attributes(x, names)
            case type():
                self._class(x, names)
            case np.ndarray():
                self._array(x)
            case bytearray():
                self._elements(x, names)
            case contextvars.ContextVar():
                self.place(functools.partial(x.get, None), names)
            case weakref.ReferenceType():
                self._reference(x, names)
            case _ if id(x) in _GLOBAL_GENERATORS or x is sys.stdout or x is sys.stderr:
                pass
            case _ if isinstance(x, _UNSEEN):
                self.found.beyond = f"it reads a {type(x).__name__}, which may change unseen"
            case _:
                self._as_object(x, names)

    def _as_object(self, x: Any, names: frozenset[str]) -> None:
        if not is_library(type(x).__module__):
            self._attributes(x, names | special(type(x)))

    def _function(self, f: types.FunctionType) -> None:
        if is_library(f.__module__ or ""):
            return
        names = mentioned(f.__code__)
        used = variables(f.__code__)
        if by_name := used & _BY_NAME:
            self.found.beyond = f"it calls {min(by_name)}(), which may read any variable"
            return
        if "is_grad_enabled" in names and torch.is_grad_enabled():
            self.found.beyond = "it asks whether gradients are recorded, which they are not in a kernel"
            return
        self.found.compares |= compares(f.__code__)
        self.asked |= asked(f)
        self.quoted |= names
        self.looks_up |= not _LOOKS_UP.isdisjoint(names)
        for cell in f.__closure__ or ():
            self.place(functools.partial(_contents, cell), names)
        self._named(f.__globals__, used, names)
        code, defaults, by_name = held = f.__code__, f.__defaults__, f.__kwdefaults__
        own = "{f}.__code__ is {code} and {f}.__defaults__ is {defaults} and {f}.__kwdefaults__ is {by_name}"
        self.found.watch(own, f=f, code=code, defaults=defaults, by_name=by_name)
        for x in held:
            self._held(x, names)

    def _named(
        self, table: dict[str, Any], names: frozenset[str], inner: frozenset[str] | None = None
    ) -> None:
        """Entries of a dictionary that code names; `inner` are those that it mentions of what they hold."""
        for name in sorted(names & table.keys()):
            self.entry(table, name, names if inner is None else inner)
        self.absent(table.keys(), names)

    def _module(self, module: torch.nn.Module) -> None:
        """Flags, children and hooks of all submodules in bulk; parameters by kind; attributes that `forward` names."""
        parts = list(module.modules())
        self.found.parts.append(tuple(m.training for m in parts))
        for m in parts:
            self.found.watch("{m}.training is {held}", m=m, held=m.training)
        hooks = [table for m in parts for table in (m._forward_hooks, m._forward_pre_hooks)] + global_hooks()
        registered = [table for m in parts for table in (m._parameters, m._buffers)]
        for table in (*hooks, *(m._modules for m in parts)):
            self._listed(table, list(table.values()), "[*{table}.values()] == {held}")
        for table in registered:
            self._listed(table, list(table), "[*{table}] == {held}")
        self.waiting += ((hook, frozenset[str]()) for table in hooks for hook in table.values())
        for table in registered:
            for name in (name for name, t in table.items() if t is None):
                self.entry(table, name, frozenset())
        self.state += (*module.parameters(), *module.buffers())
        for t in (*module.parameters(), *module.buffers()):
            self.found.parts.append(tensor_key(t))
            self.found.grads |= t.requires_grad
        for m in parts:
            for table in () if id(m) in self.inputs else (m._parameters, m._buffers):
                for name in table:
                    self.entry(table, name, frozenset())
            self.seen[id(m)] = self.seen.get(id(m), frozenset()) | _FORWARD
            self._attributes(m, _FORWARD)
            code = getattr(type(m).forward, "__code__", None)  # `MultiheadAttention`'s asks whether q is k
            self.found.compares |= code is not None and compares(code)

    def _listed(self, table: Mapping[Any, Any], held: list[Any], text: str) -> None:
        """What a dictionary of a module lists: mostly nothing."""
        self.found.parts.append(tuple(held))
        self.found.watch(text if held else "not {table}", table=table, held=held)

    def _reference(self, x: weakref.ReferenceType[Any], names: frozenset[str]) -> None:
        """Whether what it leads to is alive, and that in turn, which must not be kept alive."""
        gone = x() is None
        self.found.parts.append(gone)
        self.found.watch("({x}() is None) is {gone}", x=x, gone=gone)
        self.waiting.append((x(), names))

    def _items(
        self,
        keys: Callable[[], Collection[Any]],
        values: Callable[[], Collection[Any]],
        names: frozenset[str],
    ) -> None:
        """A dictionary of any kind, by the order of its keys and what they hold."""
        known, held = list(keys()), list(values())
        text = "{same}({keys}(), {known}) and {same}({values}(), {held})"
        self.found.watch(text, same=_same, keys=keys, known=known, values=values, held=held)
        self._contained((*known, *held), names)

    def _elements(self, x: Collection[Any], names: frozenset[str]) -> None:
        held = list(x)
        if not isinstance(x, (tuple, frozenset)):
            self.found.watch("{same}({x}, {held})", same=_same, x=x, held=held)
        self._contained(held, names)

    def _contained(self, held: Collection[Any], names: frozenset[str]) -> None:
        """Their number tells where the contents end in the key."""
        self.found.parts.append(len(held))
        for item in held:
            self._held(item, names)
            if self.found.beyond:
                return

    def _array(self, x: np.ndarray[Any, Any]) -> None:
        if x.nbytes > _BYTES or x.dtype.hasobject:
            self.found.beyond = f"it reads an array of numpy of {x.nbytes} bytes, which may change unseen"
            return
        held = x.tobytes()
        self.found.parts.append(held)
        self.found.watch("{x}.tobytes() == {held}", x=x, held=held)

    def _attributes(self, x: Any, names: frozenset[str]) -> None:
        """Attributes that code mentions; one of the class may be hidden by one of the object later."""
        table = getattr(x, "__dict__", None)
        cls = type(x)
        names = reachable(cls, names)
        if isinstance(table, dict):
            self._named(table, names)
        for name in sorted(n for n in names if isinstance(getattr(cls, n, None), types.MemberDescriptorType)):
            self.place(functools.partial(getattr, x, name, None), names)
        self._class(cls, names)

    def _class(self, cls: type, names: frozenset[str]) -> None:
        """Class attributes that are mentioned, of the user's own classes."""
        if (cls, names) in self.classes:
            return
        self.classes.add((cls, names))
        for base in cls.__mro__:
            if not is_library(base.__module__):
                own: Any = vars(base)  # a view: it shows what the class has now
                for name in sorted(names & own.keys()):
                    self.found.watch("{own}.get({name}) is {held}", own=own, name=name, held=own[name])
                    self._held(own[name], names)
                self.absent(own.keys(), names)


def _same(now: Collection[Any], held: list[Any]) -> bool:
    """Whether a container holds the very objects that it held, in the same order."""
    return len(now) == len(held) and all(map(operator.is_, now, held))


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None
