"""Arguments of framework operators as plain data (`Attr`), and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx

from fusebound.errors import FormatError
from fusebound.ir.graph import Attr, Ref, Sym, Token, Value

_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format)


def words(text: str) -> frozenset[str]:
    """A table of names, written as text."""
    return frozenset(text.split())


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.float32` → `float32`."""
    return str(dtype).removeprefix("torch.")


def torch_dtype(name: str) -> torch.dtype:
    """`float32` → `torch.float32`; raises FormatError for a name that is no element type."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise FormatError(f"{name!r} is not an element type", code="E111")
    return found


def token(name: str) -> object:
    """The framework constant that a `Token` names; raises FormatError for anything else."""
    if name.startswith("torch."):
        found = getattr(torch, name.removeprefix("torch."), None)
        if isinstance(found, _CONSTANTS):
            return found
        raise FormatError(f"{name!r} is not a framework constant", code="E111")
    try:
        return torch.device(name)
    except RuntimeError as e:
        raise FormatError(f"{name!r} is not a framework constant", code="E111") from e


def encode(x: object, ref: Callable[[torch.fx.Node], Attr]) -> Attr:
    """An argument as data. `ref` maps a node of the framework's graph to a reference or a constant."""
    match x:
        case None | bool() | int() | float() | complex() | str():
            return x
        case torch.fx.Node():
            return ref(x)
        case list() | tuple():
            return tuple(encode(i, ref) for i in x)  # type: ignore[arg-type]
        case torch.device():
            return Token(str(x))
        case torch.SymInt() | torch.SymFloat() | torch.SymBool():
            return sym(x)
        case _ if isinstance(x, _CONSTANTS):
            return Token(str(x))
        case _:
            raise FormatError(f"an argument of type {type(x).__name__} has no data form", code="E112")


def decode(x: Attr, env: Mapping[str, Any]) -> Any:
    """The argument with values looked up in `env`; sequences become lists, as operator schemas take."""
    match x:
        case Ref(id):
            return env[id]
        case Token(name):
            return token(name)
        case tuple():
            return [decode(i, env) for i in x]
        case Sym(name):
            raise FormatError(f"the size {name} is known only at run time", code="E112")
        case _:
            return x


def sym(x: torch.SymInt | torch.SymFloat | torch.SymBool | int, fallback: int = 16) -> Sym:
    """A symbol for a size known only at run time; the hint is its largest value where that is known."""
    expr = getattr(getattr(x, "node", None), "expr", x)
    name = str(expr).replace(" ", "")
    hint = fallback
    env = getattr(getattr(x, "node", None), "shape_env", None)
    if env is not None:
        try:
            upper = env.bound_sympy(expr).upper
            hint = int(upper) if upper.is_Integer and int(upper) < 2**31 else fallback
        except Exception:  # a bound that the framework cannot state is no bound
            hint = fallback
    return Sym(name, max(hint, 1))


def value_of(id: str, val: object) -> Value:
    """Shape, type, strides of a traced tensor or number."""
    match val:
        case torch.Tensor():
            strides = val.stride() if val.layout == torch.strided else (0,) * val.dim()
            return Value(
                id,
                tuple(map(_dim, val.shape)),
                dtype_name(val.dtype),
                tuple(map(_dim, strides)),
                str(val.device),
            )
        case torch.SymBool() | bool():
            return Value(id, (), "bool", (), scalar=True)
        case torch.SymInt() | int():
            return Value(id, (), "int64", (), scalar=True)
        case torch.SymFloat() | float():
            return Value(id, (), "float64", (), scalar=True)
        case _:
            raise FormatError(f"a value of type {type(val).__name__} has no form in a graph", code="E112")


def _dim(n: int | torch.SymInt) -> int | Sym:
    return n if isinstance(n, int) else sym(n)
