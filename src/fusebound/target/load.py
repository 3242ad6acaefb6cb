"""Named targets: one TOML file each under `tables/`, public figures with their sources."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from functools import cache
from importlib.resources import files
from typing import Any, cast

from fusebound.errors import FormatError
from fusebound.target.target import Target

_ORDER = ("cpu-avx512", "cpu-avx2", "cpu-neon", "cpu-generic", "a100", "h100", "h200")


@cache
def table_names() -> tuple[str, ...]:
    """Names of the tables that ship with the package: CPUs first, widest vectors first."""
    found = [p.name.removesuffix(".toml") for p in (files("fusebound.target") / "tables").iterdir()]
    return tuple(sorted(found, key=lambda n: (_ORDER.index(n) if n in _ORDER else len(_ORDER), n)))


@cache
def _document(name: str) -> dict[str, Any]:
    return tomllib.loads((files("fusebound.target") / "tables" / f"{name}.toml").read_text(encoding="utf-8"))


def load_table(name: str) -> Target:
    """The target that table `name` describes."""
    document = dict(_document(name))
    document.pop("sources", None)
    return target_from(document | {"calibrated": False}, where=f"tables/{name}.toml")


def target_from(document: dict[str, Any], *, where: str) -> Target:
    """A Target from plain data; raises FormatError, naming `where`, for a wrong field."""
    known = {f.name: str(f.type) for f in fields(Target)}
    unknown = sorted(set(document) - set(known))
    if unknown:
        raise FormatError(f"unknown target field {unknown[0]!r}", where=where)
    clean: dict[str, Any] = {}
    for name, value in document.items():
        clean[name] = _checked(name, value, known[name], where)
    try:
        return Target(**clean)
    except TypeError as why:
        raise FormatError(f"incomplete target: {str(why).split('() ', 1)[-1]}", where=where) from None


def _checked(name: str, value: object, kind: str, where: str) -> object:
    if kind == "float" and type(value) in (int, float):
        number = float(cast("float", value))
        if 0 <= number < float("inf"):
            return number
    elif (kind == "int" and type(value) is int and value >= 0) or (
        kind in ("str", "bool") and type(value).__name__ == kind
    ):
        return value
    raise FormatError(f"target field {name!r} cannot be {value!r}", where=where, hint=f"expected {kind}")
