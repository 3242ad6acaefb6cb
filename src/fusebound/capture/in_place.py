"""In-place operators in a traced program: what they alias in secret, and what no graph can say of them (E202, E206)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

import numpy as np
import torch
import torch.fx

from fusebound.capture.fxnodes import IDENTITY_AT_INFERENCE, target_name
from fusebound.capture.overlap import extent, folds, storage_of
from fusebound.capture.source import shown, source_of
from fusebound.errors import CaptureError

_MANY = 1 << 22
"""Elements up to which it is looked up whether two tensors meet."""


def show_aliases(module: torch.fx.GraphModule) -> None:
    """Make an alias of every operator that returns its very operand though its schema promises a new tensor.

    `x.type_as(x)` and a dropout that is switched off do; functionalisation, which believes the schema, would lose
    what is written to their results.
    """
    for node in _calls(module.graph):
        if _returns_alias(node) or not node.args or not isinstance(node.args[0], torch.fx.Node):
            continue
        if _is_switched_off(node) or _is_operand(node):
            node.target, node.args, node.kwargs = torch.ops.aten.alias.default, node.args[:1], {}
    module.recompile()


def _calls(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    return (n for n in graph.nodes if _op(n) is not None)


def _op(node: torch.fx.Node) -> torch._ops.OpOverload | None:
    return node.target if isinstance(node.target, torch._ops.OpOverload) else None


def _returns_alias(node: torch.fx.Node) -> bool:
    op = _op(node)
    return op is not None and any(r.alias_info is not None for r in op._schema.returns)


def _is_switched_off(node: torch.fx.Node) -> bool:
    return target_name(node.target) in IDENTITY_AT_INFERENCE and node.args[2:] == (False,)


def _is_operand(node: torch.fx.Node) -> bool:
    """Whether the result is its first operand: the same elements of the same memory.

    Traced constants (`torch.tensor([1, 2])` in the function) look like it: they are copied at every call.
    """
    if node.target is torch.ops.aten.lift_fresh_copy.default:
        return False
    a, b = node.meta.get("val"), next((n.meta.get("val") for n in node.all_input_nodes), None)
    return _is_static(a) and _is_static(b) and storage_of(a) == storage_of(b) and _place(a) == _place(b)


def _place(t: torch.Tensor) -> tuple[Any, ...]:
    return t.dtype, t.shape, t.stride(), t.storage_offset()


def check_in_place(graph: torch.fx.Graph) -> None:
    """Raise E206 where an in-place operator overwrites memory that it reads, or that one of the views between it and
    the tensor that owns the memory reaches twice; E202 where one changes an argument's shape.

    Eager judges dense operands only (`at::get_overlap_status`). For others it does not look, and elements that it
    has written already are read again: no graph says that either.
    """
    for node in _calls(graph):
        for target in _written(node):
            if _changes_shape(node) and _origin(target).op == "placeholder":
                raise CaptureError(
                    f"{node.target} changes the shape of an argument, not only its elements",
                    where=shown(source_of(node)), hint="use a view, or run it eagerly", code="E202",
                )  # fmt: skip
            for other in node.all_input_nodes:
                if other is not target and _share(target, other):
                    _check_pair(node, target, other)
            if any(_is_static(v := t.meta.get("val")) and folds(v) for t in _path(target)):
                raise _in_place(node, "writes to a tensor whose elements share memory")


def _changes_shape(node: torch.fx.Node) -> bool:
    op = _op(node)
    return op is not None and torch.Tag.inplace_view in op.tags


def _written(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """Operands that the operator writes."""
    op = _op(node)
    for i, a in enumerate(op._schema.arguments if op is not None else ()):
        if a.alias_info is not None and a.alias_info.is_write:
            x = node.args[i] if i < len(node.args) else node.kwargs.get(a.name)
            yield from (
                n for n in (x if isinstance(x, list | tuple) else [x]) if isinstance(n, torch.fx.Node)
            )


def _path(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The node, what it is a view of, and so on."""
    yield node
    for source in node.all_input_nodes[:1]:
        if _share(node, source):
            yield from _path(source)


def _origin(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose very tensor this one may be: in-place operators and those that do nothing return it."""
    while _op(node) is not None:
        source = next(_written(node), node.all_input_nodes[0] if _is_operand(node) else None)
        if source is None:
            break
        node = source
    return node


def _share(a: torch.fx.Node, b: torch.fx.Node) -> bool:
    """Whether two results lie in one storage."""
    x, y = a.meta.get("val"), b.meta.get("val")
    return isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) and storage_of(x) == storage_of(y)


def _check_pair(node: torch.fx.Node, target: torch.fx.Node, other: torch.fx.Node) -> None:
    a, b = target.meta.get("val"), other.meta.get("val")
    if not _is_static(a) or not _is_static(b):
        return
    (a0, a1), (b0, b1) = extent(a), extent(b)
    same = a0 == b0 and a.stride() == b.stride() and a.shape == b.shape
    if same or max(a0, b0) >= min(a1, b1):
        return
    if _dense(a) and _dense(b):
        raise _in_place(node, "reads memory that it partly overwrites")
    if _meet(a, b):
        raise CaptureError(
            f"{node.target} reads memory that it partly overwrites: what it gives depends on the order of its loop",
            where=shown(source_of(node)), hint="clone the operand first", code="E206",
        )  # fmt: skip


def _meet(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors share an element; large ones are taken to."""
    if a.numel() + b.numel() > _MANY or a.element_size() != b.element_size():
        return True
    return bool(np.isin(_places(a), _places(b)).any())


def _places(t: torch.Tensor) -> np.ndarray[Any, Any]:
    """Where the elements of a tensor are in its storage."""
    found = np.array(t.storage_offset())
    for n, s in zip(t.shape, t.stride(), strict=True):
        found = found[..., None] + np.arange(n) * s
    return found


def _is_static(t: Any) -> TypeGuard[torch.Tensor]:
    return (
        isinstance(t, torch.Tensor)
        and t.layout == torch.strided
        and all(isinstance(n, int) for n in (*t.shape, *t.stride(), t.storage_offset()))
    )


def _dense(t: torch.Tensor) -> bool:
    """No gaps and no overlap between elements, in some order of axes."""
    step = 1
    for s, n in sorted((s, n) for n, s in zip(t.shape, t.stride(), strict=True) if n != 1):
        if s != step:
            return False
        step *= n
    return True


def _in_place(node: torch.fx.Node, what: str) -> CaptureError:
    return CaptureError(
        f"{node.target} {what}: eager raises here", where=shown(source_of(node)),
        hint="clone the operand first", code="E206",
    )  # fmt: skip
