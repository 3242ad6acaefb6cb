"""One place of Python state: how to read it and write it back, and what it held."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

MISSING = object()
"""What a place holds that does not exist (yet)."""
PLAIN = (int, float, complex, str, bytes, bool, type(None))

Access = tuple[Callable[[], Any], Callable[[Any], None]]
"""How to read a place, and how to write it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place when it was looked at; `contents` copies what a container or buffer held."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]
    held: Any
    contents: Any

    def differs(self) -> bool:
        """Whether it holds something else now."""
        now = self.read()
        if not _same(now, self.held):
            return True
        match self.contents:
            case list() | deque():
                return len(now) != len(self.contents) or not all(map(_same, now, self.contents))
            case dict():
                kept = now.keys() == self.contents.keys()
                return not kept or not all(_same(now[k], self.contents[k]) for k in now)
            case np.ndarray():
                return now.shape != self.contents.shape or now.tobytes() != self.contents.tobytes()
            case set() | bytearray():
                return now != self.contents
            case _:
                return False

    def restore(self) -> None:
        """Put back what it held, and into that what it contained."""
        held = self.held
        match self.contents:
            case list() | bytearray():
                held[:] = self.contents
            case deque():
                held.clear()
                held.extend(self.contents)
            case dict() | set():
                held.clear()
                held.update(self.contents)
            case np.ndarray():
                held[...] = self.contents
            case _:
                pass
        self.write(held)


def place(name: str, access: Access, value: Any) -> Place:
    """A place that holds `value` now."""
    mutable = isinstance(value, (list, dict, set, deque, bytearray, np.ndarray))
    return Place(name, *access, value, _copied(value) if mutable else None)


def _copied(value: Any) -> Any:
    """The contents in a plain container of their kind, whatever subclass they are in."""
    for kind in (list, dict, set, deque):
        if isinstance(value, kind):
            return kind(value)
    return value.copy()


def itself(x: Any) -> Access:
    """A container, wherever it is."""
    return lambda: x, lambda _: None


def entry(table: dict[str, Any], key: str) -> Access:
    """An entry of a dictionary."""

    def write(value: Any) -> None:
        if value is MISSING:
            table.pop(key, None)
        else:
            table[key] = value

    return lambda: table.get(key, MISSING), write


def attribute(x: Any, key: str) -> Access:
    """An attribute of a class, a closure cell, or an object with slots."""

    def write(value: Any) -> None:
        if value is MISSING:
            delattr(x, key)
        else:
            setattr(x, key, value)

    return lambda: getattr(x, key, MISSING), write


def _same(a: Any, b: Any) -> bool:
    return a is b or (isinstance(a, PLAIN) and type(a) is type(b) and (a == b or a != a))
