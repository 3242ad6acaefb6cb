"""Functionalisation: composites stay whole, in-place operators become functional ones."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.export.exported_program as exported
import torch.fx
from torch.export import ExportedProgram

from fusebound.capture.classes import CONTRACT, boundary
from fusebound.capture.fxnodes import target_name
from fusebound.capture.lower import LOWERINGS, Unlowered
from fusebound.capture.replay import resolve

Op = torch._ops.OpOverload


def decompose(program: ExportedProgram) -> ExportedProgram:
    """Functional, composites whole; those without a lowering are taken apart if that gives known pieces."""
    with _composites(program):
        functional = program.run_decompositions({})
        unknown = {op for op in _operators(functional) if _is_unknown_composite(op)}
        if not unknown:
            return functional
        taken_apart = program.run_decompositions({op: _definition(op) for op in unknown})
    before = {n.target for n in functional.graph.nodes}
    pieces = [n for n in taken_apart.graph.nodes if n.op == "call_function" and n.target not in before]
    known = all(target_name(n.target) in LOWERINGS or n.target is operator.getitem for n in pieces)
    return taken_apart if known else functional


def _operators(program: ExportedProgram) -> Iterator[Op]:
    """Operators of the program and of the submodules that control flow calls."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (n.target for n in module.graph.nodes if isinstance(n.target, Op))


def _is_composite(op: Op) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


def _definition(op: Op) -> Callable[..., Any]:
    """The operator's own definition in terms of others."""
    return functools.partial(op._op_dk, torch._C.DispatchKey.CompositeImplicitAutograd)


def _is_unknown_composite(op: Op) -> bool:
    name = target_name(op)
    return name not in LOWERINGS and boundary(name, Unlowered("")) == ("opaque", "F601") and _is_composite(op)


@contextlib.contextmanager
def _composites(program: ExportedProgram) -> Iterator[None]:
    """Let the framework look only at the composites that matter.

    It would otherwise list and patch all 1,400 of them at every call, which takes two thirds of a small capture.
    """
    found = getattr(exported, "_collect_all_valid_cia_ops", None)
    if found is None:
        yield
        return
    chosen = _preservable(_operators(program)) | _known_composites()
    setattr(exported, found.__name__, lambda: set(chosen))
    try:
        yield
    finally:
        setattr(exported, found.__name__, found)


def _preservable(ops: Iterable[Op]) -> set[Op]:
    from torch._export.utils import _is_preservable_cia_op

    return {op for op in set(ops) if _is_preservable_cia_op(op)}


@functools.cache
def _known_composites() -> frozenset[Op]:
    """Composites with a lowering, and contractions: kept whole inside others, too."""
    lowered = [resolve(t) for t in LOWERINGS if t.startswith("aten.")]
    packets = [getattr(torch.ops.aten, name) for name in sorted(CONTRACT)]
    contractions = [getattr(p, o) for p in packets for o in p.overloads()]
    return frozenset(_preservable(op for op in (*lowered, *contractions) if isinstance(op, Op)))
