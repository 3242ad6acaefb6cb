"""Calls of framework operators as Python text, for the straight form of a plan (`straight`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from fusebound.analysis.alias import is_view
from fusebound.capture.encode import decode
from fusebound.capture.replay import inputs_of, is_alias, is_in_place, resolve, split_target
from fusebound.ir.graph import Attr, Graph, Ref, UserOp, refs
from fusebound.runtime.steps import dtype_of, is_believed, restride, strides_of


def is_plain(graph: Graph, op: UserOp) -> bool:
    """Whether an operator is torch's own, of tensors that exist and constants, and may be run a second time: it draws
    no random numbers and writes into nothing."""
    target = split_target(op.target)[0]
    scalar = any(graph.values[v].scalar for v in (*inputs_of(op), *op.outputs))
    if not target.startswith("aten.") or op.kind == "random" or scalar or not op.outputs:
        return False
    fn, needed = resolve(target), {v for n in graph.members[op.name] for v in n.inputs}
    lent = any(v not in needed for v in inputs_of(op))
    kept = is_in_place(op) and not is_view(graph, op) and not is_alias(op)
    assert isinstance(fn, torch._ops.OpOverload)
    drawn = torch.Tag.nondeterministic_seeded in fn.tags and not _drops_nothing(op, fn)
    return not (lent or kept or drawn or fn._schema.is_mutable)


def _drops_nothing(op: UserOp, fn: torch._ops.OpOverload) -> bool:
    """Whether the only draw is a dropout that is off, as attention has it at inference."""
    given = dict(zip((a.name for a in fn._schema.arguments), op.args, strict=False)) | dict(op.kwargs)
    default = {a.name: a.default_value for a in fn._schema.arguments}
    return "dropout_p" in default and given.get("dropout_p", default["dropout_p"]) == 0.0


def lines(op: UserOp, name: Mapping[str, str], scope: dict[str, Any], own: str) -> list[str]:
    """Statements that call a plain operator and name its results; its constants go to `scope`, under names that begin
    with `own`."""
    target, kept = split_target(op.target)
    fn = resolve(target)
    scope[own] = fn
    given = [_text(a, name, scope, own) for a in op.args]
    given += [f"{k}={_text(a, name, scope, own)}" for k, a in op.kwargs]
    call = f"{own}({', '.join(given)})"
    assert isinstance(fn, torch._ops.OpOverload)
    returns = fn._schema.returns
    if len(returns) == 1 and isinstance(returns[0].type, torch.TensorType):
        return [f"{name[op.outputs[0]]} = {call}"]
    picks = kept if kept is not None else range(len(op.outputs))
    made = [f"{name[v]} = {own}_all[{i}]" for v, i in zip(op.outputs, picks, strict=True)]
    return [f"{own}_all = {call}", *made, f"del {own}_all"]


def _text(a: Attr, name: Mapping[str, str], scope: dict[str, Any], own: str) -> str:
    if isinstance(a, Ref):
        return name[a.id]
    if isinstance(a, tuple) and refs(a):
        return f"[{', '.join(_text(i, name, scope, own) for i in a)}]"
    constant = f"{own}_{len(scope)}"
    scope[constant] = decode(a, {})
    return constant


def fitted(graph: Graph, value: str) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """What makes a framework's result fit the kernels that read it; None where its very size is a belief. It raises
    TypeError for another type than tracing has said."""
    if is_believed(graph, value):
        return None
    strides, dtype = strides_of(graph, value), dtype_of(graph, value)

    def fit(t: torch.Tensor) -> torch.Tensor:
        if t.dtype != dtype:
            raise TypeError(t.dtype)
        return t if t.stride() == strides and not t.is_neg() else restride(t, strides)

    return fit
