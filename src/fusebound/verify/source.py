"""Operators of a graph as the Python text of a function, and back."""

from __future__ import annotations

import keyword
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fusebound.capture.replay import TORCH, inputs_of, split_target
from fusebound.errors import FormatError
from fusebound.ir.graph import Attr, Graph, Mutation, Ref, Token, UserOp

_RESERVED = frozenset((*keyword.kwlist, "f", "base64", "inf", "math", "nan", "operator", "torch"))

_PYTHON = ("operator.", "math.", "torch.")
"""How targets begin that are no operators of a library."""


@dataclass(frozen=True, slots=True)
class Source:
    """A function `f` as text, of the values `inputs`, which returns the values `outputs` (one bare, several as a
    tuple). `libraries` are those of its operators that the user's code registers."""

    text: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    libraries: tuple[str, ...] = ()

    def function(self) -> Callable[..., Any]:
        """The function that the text defines; every operator's name comes from the graph."""
        scope: dict[str, Any] = {
            "inf": math.inf, "nan": math.nan, "math": math, "operator": operator, "torch": torch,
        }  # fmt: skip
        exec(self.text, scope)
        return scope["f"]


def function_of(graph: Graph, users: Sequence[UserOp]) -> Source:
    """The function of some operators, in the graph's order: what they read from elsewhere are its arguments, what is
    read elsewhere or returned are its results.

    Raises FormatError for an operator that has no text: control flow, sizes known only at run time.
    """
    inside = {u.name for u in users}
    outside = {v for u in graph.user_ops if u.name not in inside for v in inputs_of(u)} | graph.escaping
    return _written(users, tuple(v for u in users for v in u.outputs if v in outside))


def program_of(graph: Graph) -> Source:
    """The function of the whole graph, which changes its arguments as the graph does. Raises as `function_of`."""
    return _written(graph.user_ops, graph.outputs, graph.mutations)


def _written(users: Sequence[UserOp], outputs: tuple[str, ...], mutations: Sequence[Mutation] = ()) -> Source:
    made = {v for u in users for v in u.outputs}
    read = [v for u in users for v in inputs_of(u)] + [m.target for m in mutations] + [*outputs]
    inputs = tuple(dict.fromkeys(v for v in read if v not in made))
    names = _Names()
    head = f"def f({', '.join(names.of(v) for v in inputs)}):"
    lines = [line for u in users for line in _call(u, names)]
    lines += [f"{names.of(m.target)}.copy_({names.of(m.source)})" for m in mutations]
    result = ", ".join(names.of(v) for v in outputs)
    text = "\n    ".join((head, *lines, f"return {result}")) + "\n"
    spaces = {u.target.partition(".")[0] for u in users if not u.target.startswith(_PYTHON)}
    return Source(text, inputs, outputs, tuple(sorted(spaces - TORCH)))


@dataclass(slots=True)
class _Names:
    """Identifiers of values, each its own."""

    held: dict[str, str] = field(default_factory=dict[str, str])

    def of(self, value: str) -> str:
        if value not in self.held:
            stem = re.sub(r"\W", "_", value)
            stem = f"_{stem}" if stem in _RESERVED or stem[:1].isdigit() else stem
            taken = set(self.held.values())
            self.held[value] = stem if stem not in taken else f"{stem}_{len(taken)}"
        return self.held[value]


def _call(u: UserOp, names: _Names) -> Iterator[str]:
    target, kept = split_target(u.target)
    if target.startswith("higher_order."):
        raise FormatError(f"{u.label} has no text: control flow", code="E112")
    dotted = target if target.startswith(_PYTHON) else f"torch.ops.{target}"
    args = [_text(a, names) for a in u.args] + [f"{k}={_text(a, names)}" for k, a in u.kwargs]
    call = f"{dotted}({', '.join(args)})"
    outs = [names.of(v) for v in u.outputs]
    note = f"  # {u.label}"
    if kept is None:
        yield f"{', '.join(outs)} = {call}{note}" if outs else f"{call}{note}"
    elif len(kept) == 1:
        yield f"{outs[0]} = {call}[{kept[0]}]{note}"
    else:
        every = names.of(f"{u.name}.all")
        yield f"{every} = {call}{note}"
        yield from (f"{out} = {every}[{k}]" for out, k in zip(outs, kept, strict=True))


def _text(a: Attr, names: _Names) -> str:
    match a:
        case Ref(id):
            return names.of(id)
        case Token(name) if name.startswith("torch."):
            return name
        case Token(name) if not name.startswith("module:"):
            return f"torch.device({name!r})"
        case tuple():
            return f"[{', '.join(_text(x, names) for x in a)}]"
        case None | bool() | int() | float() | complex() | str():
            return repr(a)
        case _:
            raise FormatError(f"{a} has no text: it is known only at run time", code="E112")
