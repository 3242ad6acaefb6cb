"""Region records: a small operator graph of a real model in JSON, as in the corpus, made runnable.

A record has `inputs` (name, shape, dtype, stride, and mean and std where known; or a scalar), `nodes` (name,
target, args, kwargs) in execution order, and `outputs`. Targets are resolved by an allow-list: nothing but
operators runs.
"""

from __future__ import annotations

import keyword
import operator
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from fusebound.api.inputs import random_tensor, span
from fusebound.api.model import Model
from fusebound.errors import FormatError, UsageError

if TYPE_CHECKING:
    import torch

SEED = 0

_OPERATORS_TEXT = """
abs add and_ eq floordiv ge getitem gt iadd iand ifloordiv imul invert ior ipow isub itruediv ixor le
lshift lt matmul mod mul ne neg not_ or_ pos pow rshift sub truediv xor
"""
_OPERATORS = frozenset(_OPERATORS_TEXT.split())
_NAMESPACES = frozenset(("torch", "torch.nn.functional", "torch._C._nn", "torch.special", "torch.linalg"))
_METHODS_TEXT = """
bfloat16 bool byte char cpu dim double expand_as float half int is_floating_point long ndimension
new_tensor numel permute repeat reshape_as short size split stride to type type_as unflatten view_as
"""
_METHODS = frozenset(_METHODS_TEXT.split())
_ATTRIBUTES = frozenset(("T", "device", "dtype", "mT", "ndim", "shape"))
_NEVER = frozenset(("from_file", "_print", "save", "load", "set_"))


def from_region(record: dict[str, Any], name: str) -> Model:
    """The record as a torch.fx.GraphModule with seeded inputs of its shapes, types, strides and moments.

    Raises FormatError (E110) for a record with a part missing, an unknown value, or a target off the list.
    """
    import torch

    graph, env = torch.fx.Graph(), dict[str, Any]()
    try:
        for spec in record["inputs"]:
            env[spec["name"]] = graph.placeholder(_identifier(spec["name"], env))
        for node in record["nodes"]:
            env[node["name"]] = _call(graph, node, env)
        graph.output(tuple(env[o] for o in record["outputs"]))
        args = _inputs(record)
        return Model(name, torch.fx.GraphModule(torch.nn.Module(), graph), args)
    except UsageError:
        raise
    except Exception as error:  # whatever torch makes of a record's values
        what = f"the region record is damaged: {type(error).__name__}: {error}"
        raise FormatError(what, where=name) from None


def _identifier(name: str, taken: Collection[str] = ()) -> str:
    """A name of an argument, which becomes Python text as it stands."""
    if not name.isidentifier() or keyword.iskeyword(name) or name in taken:
        raise FormatError(f"`{name:.80}` is no name for an argument of its own")
    return name


def _call(graph: torch.fx.Graph, node: dict[str, Any], env: dict[str, Any]) -> Any:
    args = tuple(_decode(a, env) for a in node["args"])
    kwargs = {_identifier(k): _decode(v, env) for k, v in node["kwargs"].items()}
    target: str = node["target"]
    if target.startswith("method:"):
        return graph.call_method(_method(target[7:]), args, kwargs)
    if target == "builtin.getattr":
        if args[1] not in _ATTRIBUTES:
            raise _unknown(f"attribute {args[1]}")
        return graph.call_function(getattr, args, kwargs)
    return graph.call_function(_function(target), args, kwargs)


def _unknown(target: str) -> FormatError:
    return FormatError(
        f"`{target}` is not an operator that a record may name",
        hint="records name ATen operators, their torch functions and methods, and Python's arithmetic",
    )


def _is_aten(name: str) -> bool:
    import torch

    return not name.startswith("__") and name not in _NEVER and hasattr(torch.ops.aten, name)


def _method(name: str) -> str:
    if name in _METHODS or _is_aten(name):
        return name
    raise _unknown(f"method:{name}")


def _function(target: str) -> Callable[..., Any]:
    """The operator behind a dotted name, from a closed set of namespaces."""
    import torch

    if target.startswith("operator.") and target[9:] in _OPERATORS:
        return getattr(operator, target[9:])
    if target.startswith("aten:"):
        parts = target[5:].split(".")
        packet = getattr(torch.ops.aten, parts[1], None) if len(parts) == 3 and _is_aten(parts[1]) else None
        if packet is not None and parts[2] in packet.overloads():
            return getattr(packet, parts[2])
    space, _, name = target.rpartition(".")
    if space in _NAMESPACES and (_is_aten(name) or _is_functional(space, name)):
        module: Any = torch
        for part in space.split(".")[1:]:
            module = getattr(module, part)
        if callable(found := getattr(module, name, None)):
            return found
    raise _unknown(target)


def _is_functional(space: str, name: str) -> bool:
    """A public function that torch.nn.functional defines itself, or one of torch's own builtins."""
    import torch

    home: Any = torch.nn.functional if space == "torch.nn.functional" else vars(torch._C)["_nn"]
    found = getattr(home, name, None)
    return (
        not name.startswith("_")
        and callable(found)
        and getattr(found, "__module__", "") in ("torch.nn.functional", "torch._C._nn", None)
    )


def _decode(x: Any, env: dict[str, Any]) -> Any:
    """One argument: a plain JSON value, or a one-key object that says what it is."""
    import torch

    if not isinstance(x, dict):
        return x
    ((kind, v),) = x.items()
    match kind:
        case "$":
            return env[v]
        case "list":
            return [_decode(i, env) for i in v]
        case "tuple":
            return tuple(_decode(i, env) for i in v)
        case "slice":
            return slice(*(_decode(i, env) for i in v))
        case "dtype":
            return _dtype(v)
        case "device":
            return torch.device(v)
        case "float":
            return float(v)
        case "ellipsis":
            return ...
        case _:
            raise ValueError(f"unknown value {kind!r}")


def _dtype(text: str) -> torch.dtype:
    import torch

    found = getattr(torch, text.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"unknown type {text!r}")
    return found


def _inputs(record: dict[str, Any]) -> tuple[Any, ...]:
    positive = _variances(record)
    return tuple(_input(spec, SEED + i, spec["name"] in positive) for i, spec in enumerate(record["inputs"]))


def _variances(record: dict[str, Any]) -> set[str]:
    """Inputs that a batch norm takes for its running variance: they must be positive."""
    found = set[str]()
    for n in record["nodes"]:
        if n["target"].endswith("batch_norm") and len(n["args"]) > 2 and isinstance(n["args"][2], dict):
            found.add(n["args"][2].get("$", ""))
    return found


def _input(spec: dict[str, Any], seed: int, positive: bool) -> Any:
    if "scalar" in spec:
        return spec["scalar"]
    dtype = _dtype(spec["dtype"])
    shape, strides = tuple(spec["shape"]), tuple(spec["stride"])
    x = random_tensor((span(shape, strides),), str(dtype).removeprefix("torch."), seed=seed)
    if dtype.is_floating_point:
        x = x * (spec.get("std") or 1.0) + (spec.get("mean") or 0.0)
    if positive:
        x = x.abs() + 0.1
    return x.as_strided(shape, strides)
