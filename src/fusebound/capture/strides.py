"""Eager's strides and types where tracing believes others.

Tracing runs some operators by definitions of their own, which lay results out differently; and an operator in place
becomes a functional one, which returns memory of its own layout where eager writes into the operand's.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
import torch.fx
from torch._prims_common import suggest_memory_format
from torch.fx.node import map_arg

from fusebound.capture.encode import words
from fusebound.capture.fxnodes import target_name
from fusebound.capture.in_place import path
from fusebound.capture.layout import indexed, is_dense, iterated
from fusebound.capture.source import written_as

_ITERATED = words("""
aten.floor_divide.default aten.copysign.Tensor aten.xlogy.Tensor aten.special_xlogy.default aten.logaddexp.default
aten.logaddexp2.default aten.logical_and.default aten.logical_or.default aten.logical_xor.default aten.heaviside.default
aten.addcdiv.default aten.addcmul.default aten.lerp.Tensor aten.where.self aten.clamp.Tensor aten.clamp_min.Tensor
aten.clamp_max.Tensor
""")
"""Element-wise loops over several tensors that tracing lays out otherwise than eager."""

_INDICES = (torch.int64, torch.int32)

_CONTIGUOUS = words("aten.log_sigmoid.default aten.log_sigmoid_forward.default aten.pow.Scalar")
"""Operators whose results are row-major whatever their operand is."""


_LIKE_OPERAND = words("aten.max_unpool2d.default")
"""Operators whose results are laid out channels-last where their first operand is."""

_RUNNING = words("aten._native_batch_norm_legit_functional.default")
"""Training batch norms: running statistics keep their type, which tracing widens beside half precision."""


def settle(graph: torch.fx.Graph, originals: dict[str, torch.fx.Node]) -> None:
    """Give the traced results eager's strides and types, and what is computed from them those that follow.

    `originals` are the nodes of the program as the user wrote it, by name.
    """
    moved: set[torch.fx.Node] = set()
    for node in graph.nodes:
        before = node.meta.get("val")
        if node.op != "call_function" or before is None:
            continue
        if not moved.isdisjoint(node.all_input_nodes):
            _trace_again(node)
        if target_name(node.target) in _RUNNING:
            _keep_running_types(node)
        if (strides := _eager(node, written_as(node, originals))) is not None:
            _lay_out(node, strides)
        if _layout(node.meta["val"]) != _layout(before):
            moved.add(node)


def _eager(node: torch.fx.Node, written: torch.fx.Node | None) -> Sequence[int] | None:
    """The strides of a node's result in eager, where they are known to be others."""
    val, target = node.meta["val"], target_name(node.target)
    if not _is_static(val):
        return None
    if written is not None and _is_write(node, written):
        held = written.meta.get("val")
        if not _is_static(held) or (held.shape, held.dtype) != (val.shape, val.dtype):
            return None
        return held.stride() if is_dense(held) or _is_whole(written) else None
    if target in _CONTIGUOUS:
        with val.fake_mode:
            return torch.empty(val.shape, device=val.device).stride()
    if target in _LIKE_OPERAND:
        with val.fake_mode:
            format = suggest_memory_format(node.all_input_nodes[0].meta["val"])
            return torch.empty(val.shape, device=val.device, memory_format=format).stride()
    if target in _ITERATED:
        operands = [n.meta["val"] for n in node.args if isinstance(n, torch.fx.Node)]
        return iterated(val.shape, _promoted(operands)) if all(map(_is_static, operands)) else None
    if target == "aten.index.Tensor":
        x, given = node.args
        return _indexed(x, given)
    return None


def _promoted(operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The operands as the loop reads them: those of another type than the common one are copied first, which leaves
    neither gaps nor repetitions."""
    numbers = [t.dtype for t in operands if t.dtype != torch.bool] or [torch.bool]
    common = functools.reduce(torch.promote_types, numbers)
    return [
        t
        if t.dtype in (common, torch.bool)
        else torch.empty_strided(t.shape, iterated(t.shape, [t]), dtype=common, device="meta")
        for t in operands
    ]


def _indexed(x: Any, given: Any) -> Sequence[int] | None:
    """The strides of `x[given]`, for integers: what a mask picks has no fixed size."""
    indices = [n and n.meta["val"] for n in given]
    some = [t for t in indices if t is not None]
    if not _is_static(x.meta["val"]) or not all(_is_static(t) and t.dtype in _INDICES for t in some):
        return None
    with x.meta["val"].fake_mode:
        return indexed(x.meta["val"], indices)


def _keep_running_types(node: torch.fx.Node) -> None:
    """Give the last two results of a batch norm the types of its running statistics."""
    *made, mean, var = node.meta["val"]
    olds = [a.meta["val"] for a in node.args[3:5] if isinstance(a, torch.fx.Node)]
    with mean.fake_mode:
        node.meta["val"] = (*made, *(t.to(old.dtype) for t, old in zip((mean, var), olds, strict=True)))


def _is_write(node: torch.fx.Node, written: torch.fx.Node) -> bool:
    """Whether a node is the functional form of an operator in place, and not one of the views made again after it."""
    a, b = node.target, written.target
    if not isinstance(a, torch._ops.OpOverload) or not isinstance(b, torch._ops.OpOverload):
        return False
    return b._schema.is_mutable and a._opname == b._opname.removesuffix("_")


def _is_whole(written: torch.fx.Node) -> bool:
    """Whether an operator in place writes all of a tensor that the program made, gaps between its elements or not."""
    *_, owner = path(written)
    a, b = written.meta["val"], owner.meta["val"]
    return owner.op == "call_function" and (a.shape, a.stride()) == (b.shape, b.stride())


def _lay_out(node: torch.fx.Node, strides: Sequence[int]) -> None:
    val = node.meta["val"]
    if val.stride() != tuple(strides):
        with val.fake_mode:
            node.meta["val"] = torch.empty_strided(
                val.shape, tuple(strides), dtype=val.dtype, device=val.device
            )


def _trace_again(node: torch.fx.Node) -> None:
    """Trace a node once more on its operands as they are laid out now, if its sizes are fixed."""
    held: Any = map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    args, kwargs = held
    if node.target is operator.getitem:
        node.meta["val"] = args[0][args[1]]
    elif isinstance(node.target, torch._ops.OpOverload) and _is_static(val := node.meta["val"]):
        with val.fake_mode:
            node.meta["val"] = node.target(*args, **kwargs)


def _is_static(val: Any) -> TypeGuard[Any]:
    """A fake tensor of fixed sizes."""
    return (
        isinstance(val, torch._subclasses.FakeTensor)
        and val.layout == torch.strided
        and all(isinstance(n, int) for n in (*val.shape, *val.stride()))
    )


def _layout(val: Any) -> Any:
    """Strides and types of a traced result."""
    if isinstance(val, list | tuple):
        return [_layout(v) for v in val]
    return (
        (val.stride(), val.dtype) if isinstance(val, torch.Tensor) and val.layout == torch.strided else None
    )
