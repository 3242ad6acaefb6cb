"""Frozen dataclasses to plain JSON values and back, by their annotations."""

from __future__ import annotations

import json
import types
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fusebound.errors import FormatError
from fusebound.files import read_text

T = TypeVar("T")


def encode(x: Any) -> Any:
    """Dataclasses become objects in field order, tuples lists."""
    if is_dataclass(x):
        return {f.name: encode(getattr(x, f.name)) for f in fields(x)}
    if isinstance(x, (tuple, list)):
        return [encode(i) for i in x]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(x, dict):
        return {k: encode(v) for k, v in x.items()}  # pyright: ignore[reportUnknownVariableType]
    return x


def decode(cls: type[T], data: Any) -> T:
    """The inverse of `encode`; raises FormatError naming the field that is missing, unknown or mistyped."""
    return _value(cls, data, cls.__name__)


def _value(kind: Any, data: Any, where: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union(get_args(kind), data, where)
    if origin is tuple:
        _expect(isinstance(data, list), data, "a list", where)
        return tuple(_value(get_args(kind)[0], x, f"{where}[{i}]") for i, x in enumerate(data))
    if origin is dict:
        _expect(isinstance(data, dict), data, "an object", where)
        return {str(k): _value(get_args(kind)[1], v, f"{where}.{k}") for k, v in data.items()}
    if is_dataclass(kind):
        return _record(kind, data, where)
    if kind is float:
        _expect(isinstance(data, (int, float)) and not isinstance(data, bool), data, "a number", where)
        return float(data)
    exact = type(data) is kind
    _expect(exact, data, f"of type {kind.__name__}", where)
    return data


def _union(members: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in members:
        return None
    return _value(next(m for m in members if m is not type(None)), data, where)


def _record(cls: Any, data: Any, where: str) -> Any:
    _expect(isinstance(data, dict), data, "an object", where)
    hints = get_type_hints(cls)
    known = {f.name: f for f in fields(cls)}
    for name in data:
        _expect(name in known, data[name], "a known field", f"{where}.{name}")
    given = {name: _value(hints[name], value, f"{where}.{name}") for name, value in data.items()}
    for name, f in known.items():
        optional = f.default is not MISSING or f.default_factory is not MISSING
        _expect(name in given or optional, None, "present", f"{where}.{name}")
    return cls(**given)


def _expect(condition: bool, data: Any, wanted: str, where: str) -> None:
    if not condition:
        raise FormatError(f"{where} should be {wanted}, not {str(data)[:40]!r}", where=where)


def dumps(data: Any) -> str:
    """Indented JSON ending in a newline; NaN and infinities are written as JavaScript does."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def loads(path: Path) -> Any:
    """The JSON value of a file; raises FormatError with the line and column of what is wrong."""
    try:
        return json.loads(read_text(path, "the file"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the file is not JSON: {error}", where=str(path)) from None
