"""In-place operators in a traced program: what they alias in secret, and what no graph can say of them (E202, E206)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
import torch.fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import map_arg

from fusebound.capture.classes import classify
from fusebound.capture.fxnodes import IDENTITY_AT_INFERENCE, target_name
from fusebound.capture.overlap import extent, folds, meet, overlapping_mutation, storage_of
from fusebound.capture.source import shown, source_of
from fusebound.errors import CaptureError


def drop_identities(program: ExportedProgram) -> None:
    """Drop every operator that returns its very operand though its schema promises a new tensor.

    `x.type_as(x)` and a dropout that is switched off do; functionalisation, which believes the schema, would lose
    what is written to their results. An expansion that repeats nothing becomes a view: what is written through it
    would come back as `x + (new - x)`, which rounds, and is NaN where x is infinite.
    """
    for node in list(_calls(program.graph)):
        operand = node.args[0] if node.args else None
        if _repeats_nothing(node):
            node.target, node.args = torch.ops.aten.view.default, (operand, [*node.meta["val"].shape])
            node.kwargs = {}
        if _returns_alias(node) or not isinstance(operand, torch.fx.Node):
            continue
        if _is_switched_off(node) or _is_operand(node):
            node.replace_all_uses_with(operand)
            program.graph_signature.replace_all_uses(node.name, operand.name)
            program.graph.erase_node(node)
    program.graph_module.recompile()


def _calls(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    return (n for n in graph.nodes if _op(n) is not None)


def _op(node: torch.fx.Node) -> torch._ops.OpOverload | None:
    return node.target if isinstance(node.target, torch._ops.OpOverload) else None


def _returns_alias(node: torch.fx.Node) -> bool:
    op = _op(node)
    return op is not None and any(r.alias_info is not None for r in op._schema.returns)


def _repeats_nothing(node: torch.fx.Node) -> bool:
    """Whether it is an expansion to as many elements as there were."""
    if node.target not in (torch.ops.aten.expand.default, torch.ops.aten.expand_as.default):
        return False
    a, b = node.meta.get("val"), node.all_input_nodes[0].meta.get("val")
    return _is_static(a) and _is_static(b) and a.numel() == b.numel() > 0


def _is_switched_off(node: torch.fx.Node) -> bool:
    """Whether it is a dropout that returns its operand: at inference, of nothing, or with probability 0."""
    if target_name(node.target) not in IDENTITY_AT_INFERENCE:
        return False
    val = node.meta.get("val")
    return node.args[1] in (0, 0.0) or node.args[2:] == (False,) or (_is_static(val) and val.numel() == 0)


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


@dataclass(frozen=True, slots=True)
class _Operand:
    """A tensor that a call reads or writes; `place` is its index in a list of tensors, -1 outside lists."""

    node: torch.fx.Node
    place: int
    written: bool


def _operands(call: torch.fx.Node) -> list[_Operand]:
    op, found = _op(call), list[_Operand]()
    for i, a in enumerate(op._schema.arguments if op is not None else ()):
        x = call.args[i] if i < len(call.args) else call.kwargs.get(a.name)
        written = a.alias_info is not None and a.alias_info.is_write
        members = enumerate(x) if isinstance(x, list | tuple) else ((-1, x),)
        found += [_Operand(n, k, written) for k, n in members if isinstance(n, torch.fx.Node)]
    return found


def check_in_place(graph: torch.fx.Graph) -> None:
    """Raise E204 where an operator writes to a tensor that is two inputs; E206 where it overwrites memory that it still
    reads, or that one of the views between it and the tensor that owns the memory reaches twice or shows in windows
    with gaps; E202 where it changes the shape of an argument.

    Eager judges dense operands only (`at::get_overlap_status`). For others it does not look, and elements that it
    has written already are read again: no graph says that either.
    """
    tied = _tied_inputs(graph)
    changed = (t.node.meta.get("val") for call in _calls(graph) for t in _operands(call) if t.written)
    written = {storage_of(val) for val in changed if isinstance(val, torch.Tensor)}
    for call in _calls(graph):
        _check_view(call, written)
        operands = _operands(call)
        for target in operands:
            if target.written:
                *_, base = path(target.node)
                if name := tied.get(_identity(base)):
                    raise overlapping_mutation(name, source_of(call))
                _check_target(call, target.node)
                for other in operands:
                    if other is not target and _share(target.node, other.node):
                        _check_pair(call, target, other)


def _tied_inputs(graph: torch.fx.Graph) -> dict[object, str]:
    """Tensors that are several inputs, by what they are, with the name of the last: tied parameters (an argument that
    is passed twice is traced apart, `overlap.separated`)."""
    inputs = [(n.name, _identity(n)) for n in graph.find_nodes(op="placeholder")]
    counts = Counter(identity for _, identity in inputs)
    return {identity: name for name, identity in inputs if identity is not None and counts[identity] > 1}


def _identity(node: torch.fx.Node) -> object:
    val = node.meta.get("val")
    return (storage_of(val), _place(val)) if _is_static(val) else None


def _check_target(call: torch.fx.Node, target: torch.fx.Node) -> None:
    argument = _changes_shape(call) and _origin(target).op == "placeholder"
    if argument or _resizes(call, target):
        raise CaptureError(
            f"{call.target} changes the shape of {'an argument' if argument else 'its out='}, not only its elements",
            where=shown(source_of(call)), hint="use a view, or run it eagerly", code="E202",
        )  # fmt: skip
    if _converts(call, target):
        raise CaptureError(
            f"{call.target} has an out= of another type than its result's: eager may refuse it, tracing does not",
            where=shown(source_of(call)), hint="give out= the type of the result", code="E202",
        )  # fmt: skip
    if any(map(_may_fold, path(target))):
        raise _in_place(
            call, "writes to a tensor whose elements share memory: eager raises here, or writes some twice"
        )
    if any(map(_leaves_gaps, path(target))):
        raise _in_place(
            call, "writes through windows (unfold) that leave elements out", "write through slices instead"
        )


def _check_view(view: torch.fx.Node, written: Collection[int]) -> None:
    """Refuse strides of its own on an argument's memory, of which it shows more than the argument's elements, where
    that is written: a graph has no values for the rest."""
    if view.target is not torch.ops.aten.as_strided.default:
        return
    *_, base = path(view)
    a, b = view.meta.get("val"), base.meta.get("val")
    if base.op != "placeholder" or not isinstance(b, torch.Tensor) or storage_of(b) not in written:
        return
    if _is_static(a) and _is_static(b) and _covers(b, a):
        return
    raise _in_place(
        view, "shows memory beside the elements of an argument that is written", "index it instead"
    )


def _covers(b: torch.Tensor, a: torch.Tensor) -> bool:
    """Whether the elements of `b` fill a range of memory in which `a` lies."""
    (start, end), (low, high) = extent(b), extent(a)
    return start <= low and high <= end and end - start == b.numel() * b.element_size()


def _may_fold(node: torch.fx.Node) -> bool:
    """Whether several indices may meet at one address: told by strides, or for sizes of the run by what made it."""
    val = node.meta.get("val")
    if _is_static(val):
        return folds(val)
    if not isinstance(val, torch.Tensor) or val.layout != torch.strided:
        return False
    if node.target in (torch.ops.aten.as_strided.default, torch.ops.aten.unfold.default):
        return True
    axes = zip(val.shape, val.stride(), strict=True)
    return any(_is(s, 0) and not _is(n, 1) for n, s in axes)


def _is(size: Any, number: int) -> bool:
    """Whether a size is this number, so far as tracing knows."""
    return bool(statically_known_true(size == number))


def _leaves_gaps(node: torch.fx.Node) -> bool:
    """Whether it is a view of windows that do not hold all elements; tracing would fill the others with zeros."""
    if node.target is not torch.ops.aten.unfold.default:
        return False
    a, b = node.meta.get("val"), node.all_input_nodes[0].meta.get("val")
    return not (_is_static(a) and _is_static(b) and a.numel() == b.numel())


def _changes_shape(call: torch.fx.Node) -> bool:
    op = _op(call)
    return op is not None and torch.Tag.inplace_view in op.tags


def _resizes(call: torch.fx.Node, target: torch.fx.Node) -> bool:
    """Whether an `out=` does not have the shape of the result."""
    a, b = call.meta.get("val"), target.meta.get("val")
    return target in call.kwargs.values() and _is_static(a) and _is_static(b) and a.shape != b.shape


def _converts(call: torch.fx.Node, target: torch.fx.Node) -> bool:
    """Whether one of several `out=` has another type than the operator gives without them."""
    op, traced = _op(call), call.meta.get("val")
    if op is None or not isinstance(traced, tuple) or target not in call.kwargs.values():
        return False
    outs = [a.name for a in op._schema.arguments if a.kwarg_only and a.alias_info is not None]
    rest = [(a.name, str(a.type)) for a in op._schema.arguments if a.name not in outs]
    packet = op.overloadpacket
    for plain in (getattr(packet, name) for name in packet.overloads()):
        if [(a.name, str(a.type)) for a in plain._schema.arguments] != rest:
            continue
        given: Any = map_arg((call.args, {k: v for k, v in call.kwargs.items() if k not in outs}), _traced)
        with traced[0].fake_mode:
            made = plain(*given[0], **given[1])
        return any(
            call.kwargs[name] is target and t.dtype != _traced(target).dtype
            for name, t in zip(outs, made, strict=True)
        )
    return False


def _traced(node: torch.fx.Node) -> Any:
    return node.meta["val"]


def _check_pair(call: torch.fx.Node, target: _Operand, other: _Operand) -> None:
    """Pointwise operators may read the very elements that they write. Lists are worked through one by one: what is
    written for one place is read at later ones, where a functional operator has the old content."""
    a, b = _traced(target.node), _traced(other.node)
    listed = target.place >= 0 and other.place >= 0 and target.place != other.place
    if listed and target.place > other.place:
        return
    pointwise = classify(target_name(call.target)) == "pointwise" and not other.written and not listed
    if (pointwise and _same_place(a, b)) or not _may_meet(a, b):
        return
    sure = "" if _is_static(a) and _is_static(b) else " (for all that tracing knows of sizes of the run)"
    if listed:
        what = "reads or writes, in one place of its lists, what it has written in an earlier one"
    else:
        what = "reads memory that it overwrites: eager raises here, or its loop's order decides"
    raise _in_place(call, what + sure)


def _may_meet(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one storage have an element in common, or sizes of which tracing can't tell."""
    if not _is_static(a) or not _is_static(b):
        return a.layout == torch.strided == b.layout
    return meet(a, b, extent(b)[0] - extent(a)[0])


def _same_place(a: torch.Tensor, b: torch.Tensor) -> bool:
    if _is_static(a) and _is_static(b):
        return _place(a) == _place(b)
    if a.dtype != b.dtype or a.dim() != b.dim():
        return False
    numbers = ((*t.shape, *t.stride(), t.storage_offset()) for t in (a, b))
    return all(statically_known_true(x == y) for x, y in zip(*numbers, strict=True))


def path(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The node, what it is a view of, and so on."""
    yield node
    for source in node.all_input_nodes[:1]:
        if isinstance(source.meta.get("val"), list | tuple):  # a piece of a split
            source = source.all_input_nodes[0]
        if _share(node, source):
            yield from path(source)


def _origin(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose very tensor this one may be: in-place operators and those that do nothing return it."""
    while _op(node) is not None:
        same = [o.node for o in _operands(node) if o.written or _is_operand(node)]
        if not same:
            break
        node = same[0]
    return node


def _share(a: torch.fx.Node, b: torch.fx.Node) -> bool:
    """Whether two results lie in one storage."""
    x, y = a.meta.get("val"), b.meta.get("val")
    return isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) and storage_of(x) == storage_of(y)


def _is_static(t: Any) -> TypeGuard[torch.Tensor]:
    return (
        isinstance(t, torch.Tensor)
        and t.layout == torch.strided
        and all(isinstance(n, int) for n in (*t.shape, *t.stride(), t.storage_offset()))
    )


def _in_place(node: torch.fx.Node, what: str, hint: str = "clone the operand first") -> CaptureError:
    return CaptureError(f"{node.target} {what}", where=shown(source_of(node)), hint=hint, code="E206")  # fmt: skip
