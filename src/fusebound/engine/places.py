"""Places outside of a function's arguments, what they held, and whether they still do."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from fusebound.engine.keys import Key

MANY = 1 << 16
"""Places that are watched at most: comparing them takes milliseconds at every call."""
FEW = 64
"""Places up to which each is compared by a term of its own."""
MISSING = object()
"""What an entry holds that is not there: it may appear."""


class Identity:
    """An object as part of a key: equal to itself alone, and alive as long as the key is."""

    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.held is self.held

    def __hash__(self) -> int:
        return id(self.held)


@dataclass(slots=True)
class Surroundings:
    """Places outside of a function's arguments, and what they held when it was looked at.

    `key` is hashable; `grads` says that a tensor there wants gradients; `beyond` what cannot be watched, if anything;
    `asked` the attributes, unknown to tensors, that code may ask of an argument: it may carry one of its user's;
    `compares` that code asks which object a value is.
    `holds()` is a fast comparison of everything with the present: entries of dictionaries in bulk, the rest one by one.
    """

    tables: list[dict[Any, Any]] = field(default_factory=list[dict[Any, Any]])
    names: list[Any] = field(default_factory=list[Any])
    values: list[Any] = field(default_factory=list[Any])
    checks: list[Callable[[], bool]] = field(default_factory=list[Callable[[], bool]])
    tensors: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    parts: list[Any] = field(default_factory=list[Any])
    grads: bool = False
    beyond: str = ""
    asked: frozenset[str] = frozenset()
    compares: bool = False

    @property
    def key(self) -> Key:
        return tuple(self.parts)

    def holds(self) -> bool:
        """Whether every place still holds the very object that it held."""
        now = map(dict.get, self.tables, self.names, itertools.repeat(MISSING))
        return all(map(operator.is_, now, self.values)) and all(check() for check in self.checks)

    def written_out(self) -> tuple[list[str], dict[str, Any]]:
        """`holds()` as terms of an expression, and the names in them; where there are many places, in bulk."""
        count = len(self.tables)
        if count + len(self.checks) > FEW:
            return ["holds()"], {"holds": self.holds}
        names = {f"{what}{i}": x for what, xs in self._columns() for i, x in enumerate(xs)}
        entries = [f"get(table{i}, key{i}, missing) is held{i}" for i in range(count)]
        names |= {"get": dict.get, "missing": MISSING}
        return [*entries, *(f"place{i}()" for i in range(len(self.checks)))], names

    def _columns(self) -> tuple[tuple[str, list[Any]], ...]:
        return ("table", self.tables), ("key", self.names), ("held", self.values), ("place", self.checks)
