"""The user's word on operators by name: what must not, and must, share a kernel, and which τ holds where."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from fusebound.analysis.tau import KINDS, Tau
from fusebound.errors import FormatError, UsageError
from fusebound.files import read_text
from fusebound.ir.graph import Graph, UserOp

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Bound:
    """τ for the kernels in which every pattern meets an operator: one pattern a group, two a boundary."""

    operators: tuple[str, ...]
    tau: Tau


@dataclass(frozen=True, slots=True)
class Rules:
    """Patterns of operator names (`softmax`, `layers.*`).

    `forbid` keeps two operators apart. `require` overrules the policy and the resources and gain gates for a
    merge that joins the two; dependence and precision cannot be overruled. `tau` takes the place of the plan's τ
    in the kernels that it names; the first that fits counts.
    """

    forbid: tuple[Pair, ...] = ()
    require: tuple[Pair, ...] = ()
    tau: tuple[Bound, ...] = ()

    def tau_of(self, users: Iterable[UserOp], default: Tau | None) -> Tau | None:
        """The τ that a kernel of these operators is held to."""
        if not self.tau:
            return default
        ops = tuple(users)
        return next((b.tau for b in self.tau if _each_meets(b.operators, ops)), default)

    def requires(self, users: Iterable[UserOp]) -> bool:
        """Whether a demand holds some of these operators together."""
        ops = tuple(users)
        return any(_each_meets(pair, ops) for pair in self.require)

    def unmatched(self, g: Graph) -> Iterator[str]:
        """Patterns that name no operator of a graph or of its subgraphs, in the order of the rules."""
        named = [p for pair in (*self.forbid, *self.require, *(b.operators for b in self.tau)) for p in pair]
        for pattern in dict.fromkeys(named):
            if not any(matches(u, pattern) for u in _operators(g)):
                yield pattern

    def to_json(self) -> dict[str, object]:
        """The rules in the form of a rules file; what is empty is left out."""
        data: dict[str, object] = {}
        if self.forbid:
            data["forbid"] = [list(p) for p in self.forbid]
        if self.require:
            data["require"] = [list(p) for p in self.require]
        if self.tau:
            data["tau"] = [{"operators": list(b.operators), **b.tau.given} for b in self.tau]
        return data


NO_RULES = Rules()


class RuleNotice(UserWarning):
    """Said of a rule that names no operator of the function that it is given for, and of a demand that is not met."""


def matches(u: UserOp, pattern: str) -> bool:
    """Whether a pattern names an operator, alone or with its module path."""
    full = f"{u.scope}.{u.name}" if u.scope else u.name
    return fnmatchcase(u.name, pattern) or fnmatchcase(full, pattern)


def _operators(g: Graph) -> Iterator[UserOp]:
    yield from g.user_ops
    for inner in g.subgraphs.values():
        yield from _operators(inner)


def _each_meets(patterns: Iterable[str], users: tuple[UserOp, ...]) -> bool:
    """Whether every pattern names an operator of its own."""
    left = list(users)
    for p in patterns:
        found = next((u for u in left if matches(u, p)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def rules_of(x: Rules | str | Path | Mapping[str, object] | None) -> Rules:
    """Rules from what a user gives: a path to a TOML file, or a mapping of the same form.

    Raises FormatError for a missing or damaged file and for a rule that cannot be read.
    """
    match x:
        case None:
            return NO_RULES
        case Rules():
            return x
        case str() | Path():
            return read_rules(Path(x))
        case _:
            return rules_from_data(x, "rules")


def read_rules(path: Path) -> Rules:
    """The rules of a TOML file; raises FormatError."""
    try:
        data = tomllib.loads(read_text(path, "the rules"))
    except (ValueError, RecursionError) as e:
        raise FormatError(f"not TOML: {e}", where=str(path)) from e
    return rules_from_data(data, str(path))


def rules_from_data(data: object, where: str) -> Rules:
    """The rules of plain data; raises FormatError, naming the entry."""
    if not isinstance(data, Mapping):
        raise FormatError(f"rules are a table, not {data!r:.60}", where=where)
    table = cast("Mapping[str, object]", data)
    _known(table, ("forbid", "require", "tau"), where)
    forbid, require = (
        tuple(_pair(p, f"{where}, {key}") for p in _list(table.get(key, []), f"{where}, {key}"))
        for key in ("forbid", "require")
    )
    bounds = tuple(_bound(b, f"{where}, tau") for b in _list(table.get("tau", []), f"{where}, tau"))
    return Rules(forbid, require, bounds)


def _known(table: Mapping[str, object], names: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in names:
            close = get_close_matches(str(key), names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(names)}"
            raise FormatError(f"unknown key {key!r}", where=where, hint=hint)


def _list(x: object, where: str) -> list[Any]:
    if not isinstance(x, (list, tuple)):
        raise FormatError(f"a list is due, not {x!r:.60}", where=where)
    return list(cast("list[Any]", x))


def _names(x: object, where: str) -> tuple[str, ...]:
    names = _list(x, where)
    if not all(isinstance(n, str) and n for n in names):
        raise FormatError(f"operators are named by strings, not {x!r:.60}", where=where)
    return tuple(names)


def _pair(x: object, where: str) -> Pair:
    names = _names(x, where)
    if len(names) != 2:
        raise FormatError(f"two operators are due, not {len(names)}", where=where, hint='["softmax", "mul"]')
    return names[0], names[1]


def _bound(x: object, where: str) -> Bound:
    if not isinstance(x, Mapping):
        raise FormatError(f"a table is due, not {x!r:.60}", where=where, hint="[[tau]]")
    table = cast("Mapping[str, object]", x)
    _known(table, ("operators", *KINDS), where)
    names = _names(table.get("operators", []), where)
    if len(names) not in (1, 2):
        hint = 'operators = ["softmax"] for its kernels, ["softmax", "mul"] for those that join the two'
        raise FormatError(f"one or two operators are due, not {len(names)}", where=where, hint=hint)
    try:
        tau = Tau.of({k: cast("float", v) for k, v in table.items() if k in KINDS})
    except UsageError as e:
        raise FormatError(e.what, where=where, hint=e.hint) from e
    assert tau is not None
    return Bound(names, tau)
