"""Places outside of a function's arguments, what they held, and whether they still do."""

from __future__ import annotations

import itertools
import operator
from dataclasses import dataclass, field
from typing import Any

import torch

from fusebound.engine.keys import Key

MANY = 1 << 16
"""Places that are watched at most: comparing them takes milliseconds at every call."""
FEW = 64
"""Entries of dictionaries up to which each is compared by a term of its own."""
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
    `compares` that code asks which object a value is. `terms` are what is asked at every call: expressions over the
    objects in `scope`, each true while a place is as it was; so are entries of dictionaries, in three columns.
    """

    tables: list[dict[Any, Any]] = field(default_factory=list[dict[Any, Any]])
    keys: list[Any] = field(default_factory=list[Any])
    values: list[Any] = field(default_factory=list[Any])
    terms: list[str] = field(default_factory=list[str])
    scope: dict[str, Any] = field(default_factory=dict[str, Any])
    tensors: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    parts: list[Any] = field(default_factory=list[Any])
    grads: bool = False
    beyond: str = ""
    asked: frozenset[str] = frozenset()
    compares: bool = False

    @property
    def key(self) -> Key:
        return tuple(self.parts)

    def watch(self, text: str, **objects: Any) -> None:
        """Add a term; `{name}` in it stands for one of the objects."""
        n = len(self.terms)
        self.terms.append(text.format_map({name: f"{name}_{n}" for name in objects}))
        self.scope |= {f"{name}_{n}": x for name, x in objects.items()}

    def written_out(self) -> tuple[list[str], dict[str, Any]]:
        """The terms that are all true while every place holds the very object that it held, and the names in them;
        entries of dictionaries in bulk where there are many."""
        if len(self.tables) > FEW:
            return ["entries_hold()", *self.terms], {"entries_hold": self._entries_hold, **self.scope}
        columns = (("table", self.tables), ("key", self.keys), ("value", self.values))
        names = {f"{what}{i}": x for what, xs in columns for i, x in enumerate(xs)}
        entries = [f"get(table{i}, key{i}, missing) is value{i}" for i in range(len(self.tables))]
        return [*entries, *self.terms], {"get": dict.get, "missing": MISSING, **names, **self.scope}

    def _entries_hold(self) -> bool:
        now = map(dict.get, self.tables, self.keys, itertools.repeat(MISSING))
        return all(map(operator.is_, now, self.values))
