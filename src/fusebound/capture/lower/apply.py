"""Runs one lowering: checks that it may be used, binds its arguments, and tidies what it emitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fusebound.capture import replay
from fusebound.capture.lower.context import LOWERINGS, Ctx, T, Unlowered
from fusebound.capture.registry import CUSTOM, naming_lower
from fusebound.ir.builder import Builder
from fusebound.ir.dtypes import KERNEL_DTYPES
from fusebound.ir.graph import Node, Value
from fusebound.ir.ops import OPS, OpClass
from fusebound.words import count


@dataclass(frozen=True, slots=True)
class Call:
    """One framework call. `results` are the values that it returns, in order; `traced` its operands and
    results as the tracer saw them."""

    target: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    results: tuple[Value, ...]
    traced: tuple[Any, ...]


def lower(builder: Builder, call: Call, handle: Callable[[Ctx, Any], Any]) -> list[T]:
    """Emit the call's primitives; `handle` turns an argument into what lowerings take.

    Raises Unlowered where the call stays with the framework; the builder may then hold primitives to
    `prune`.
    """
    check_supported(call.traced)
    fn = LOWERINGS.get(call.target)
    if fn is None and any(isinstance(v, torch.SymFloat) for v in call.traced):
        raise Unlowered("a number that is known only at run time", "F602")
    if fn is None:
        raise Unlowered(f"{call.target} has no primitives")
    ctx = Ctx(builder, call.results)
    positional, keyword = _bind(call, lambda x: handle(ctx, x))
    if call.target in CUSTOM:
        with naming_lower(call.target, fn):
            return _results(fn(ctx, *positional, **keyword), call.results)
    return _results(fn(ctx, *positional, **keyword), call.results)


def _results(result: Any, wanted: Sequence[Value]) -> list[T]:
    found = list(result) if isinstance(result, list | tuple) else [result]
    _check_results(found, wanted)
    return found


def _bind(call: Call, handle: Callable[[Any], Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments in the schema's order with defaults; keyword-only ones by name. Python's operators have no schema."""
    if call.target.startswith("operator."):
        return [handle(a) for a in call.args], {}
    positional: list[Any] = []
    keyword: dict[str, Any] = {}
    for i, a in enumerate(replay.schema(call.target).arguments):
        given = call.args[i] if i < len(call.args) else call.kwargs.get(a.name, a.default_value)
        if a.kwarg_only:
            keyword[a.name] = handle(given)
        else:
            positional.append(handle(given))
    return positional, keyword


def check_supported(traced: Iterable[Any]) -> None:
    """Raise Unlowered for operands or results that no kernel takes."""
    for v in traced:
        if isinstance(v, torch.SymInt | torch.SymBool):
            raise Unlowered("a number that is known only at run time", "F602")
        if not isinstance(v, torch.Tensor):
            continue
        if v.layout != torch.strided or v.is_quantized:
            raise Unlowered("a tensor that is not strided", "F604")
        if str(v.dtype).removeprefix("torch.") not in KERNEL_DTYPES:
            raise Unlowered(f"{v.dtype} has no kernels", "F604")
        if v.device.type != "cpu":
            raise Unlowered(f"the device {v.device}", "F605")
        if not all(isinstance(n, int) for n in (*v.shape, *v.stride())):
            raise Unlowered("a size that is known only at run time", "F602")


def _check_results(found: Sequence[T], wanted: Sequence[Value]) -> None:
    """A lowering that disagrees with the framework about a shape or type is not used."""
    if len(found) != len(wanted):
        raise Unlowered(f"the lowering gives {count(len(found), 'result')}, the framework {len(wanted)}")
    for t, v in zip(found, wanted, strict=True):
        if t.value.shape != v.shape or t.value.dtype != v.dtype:
            raise Unlowered(
                f"the lowering gives {t.value.dtype}{t.value.shape}, the framework {v.dtype}{v.shape}"
            )


def settle(
    builder: Builder, start: int, name: str, found: Sequence[T], wanted: Sequence[Value], *, own: bool
) -> list[str]:
    """Value ids of the results, with the framework's strides; primitives that no result needs are dropped.

    `start` counts the nodes before the operator. With `own`, a result that is an operand gets a value of its
    own.
    """
    made = {n.out for n in builder.nodes[start:]}
    outs: list[str] = []
    for t in found:
        id = t.id
        if own and id not in made:
            id = builder.emit("reshape", id, shape=t.shape)
            made.add(id)
        outs.append(id)
    prune(builder, start, outs)
    for id, v in zip(outs, wanted, strict=True):
        if id in made:
            builder.restride(id, v.strides, scalar=v.scalar)
    return _rename(builder, start, name, outs)


def prune(builder: Builder, start: int, keep: Iterable[str] = ()) -> None:
    """Drop the nodes from `start` on that `keep` does not need."""
    needed = set(keep)
    for i in range(len(builder.nodes) - 1, start - 1, -1):
        node = builder.nodes[i]
        if needed.isdisjoint(node.outputs):
            for o in node.outputs:
                del builder.values[o]
            del builder.nodes[i]
        else:
            needed.update(node.inputs)


def _rename(builder: Builder, start: int, name: str, outs: Sequence[str]) -> list[str]:
    """The (first) result is called like the operator, the other values `name.1`, `name.2`, …"""
    made = [n.out for n in builder.nodes[start:]]
    if not outs or outs[0] not in made:
        return list(outs)
    numbered = iter([f"{name}.{i}" for i in range(1, len(made))])
    new = {old: name if old == outs[0] else next(numbered) for old in made}
    values = {old: builder.values.pop(old) for old in made}
    for old, v in values.items():
        builder.values[new[old]] = replace(v, id=new[old])
    for i in range(start, len(builder.nodes)):
        n = builder.nodes[i]
        inputs = tuple(new.get(x, x) for x in n.inputs)
        builder.nodes[i] = replace(n, id=new[n.out], inputs=inputs, outputs=(new[n.out],))
    return [new.get(o, o) for o in outs]


def kind_of(nodes: Iterable[Node]) -> OpClass:
    """The strongest class among the primitives of a composite (an expanded constant is computed)."""
    ops = [n.op for n in nodes]
    classes = {OPS[op].cls for op in ops if op != "const"}
    for cls in ("random", "gather", "reduce", "pointwise"):
        if cls in classes:
            return cls
    return "pointwise" if "const" in ops else "move"
