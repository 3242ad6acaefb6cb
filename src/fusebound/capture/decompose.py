"""Functionalisation: composites stay whole, in-place operators become functional ones."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import torch
import torch.export.exported_program as exported
import torch.fx
from torch._inductor import config as inductor
from torch.export import ExportedProgram

from fusebound.capture.classes import CONTRACT, boundary
from fusebound.capture.fxnodes import target_name
from fusebound.capture.lower import LOWERINGS, Unlowered
from fusebound.capture.replay import resolve

Op = torch._ops.OpOverload
SECRET_VIEWS = frozenset((
    torch.ops.aten.broadcast_tensors.default, torch.ops.aten.meshgrid.default, torch.ops.aten.meshgrid.indexing,
    torch.ops.aten.atleast_1d.Sequence, torch.ops.aten.atleast_2d.Sequence, torch.ops.aten.atleast_3d.Sequence,
))  # fmt: skip
"""Composites whose results are views of their operands though their schemas do not say so: kept whole, what is written
to an operand or a result would be lost to the others."""
AUTOGRAD = torch._C.DispatchKey.Autograd


def decompose(program: ExportedProgram) -> ExportedProgram:
    """Functional, composites whole; those without a lowering are taken apart if that gives known pieces."""
    composites = (preservable(_operators(program)) | _known_composites()) - SECRET_VIEWS
    with looking_only_at(composites), our_rules(), eager_draws():
        functional = program.run_decompositions(dict(DROPOUT))
        unknown = {op for op in _operators(functional) if _is_unknown_composite(op)}
        if not unknown:
            return functional
        taken_apart = program.run_decompositions({**DROPOUT, **{op: _definition(op) for op in unknown}})
    before = {n.target for n in functional.graph.nodes}
    pieces = [n for n in taken_apart.graph.nodes if n.op == "call_function" and n.target not in before]
    lowered = all(target_name(n.target) in LOWERINGS or n.target is operator.getitem for n in pieces)
    return taken_apart if lowered else functional


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


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """ATen's `_dropout` on a CPU, functionally: the mask is drawn in the operand's type and memory order."""
    if not train or p == 0 or not x.numel():
        return x.clone()
    if p == 1:
        return x * torch.zeros((), dtype=x.dtype, device=x.device)
    keep = 1.0 - p
    return x * (torch.ops.aten.bernoulli.p(torch.empty_like(x), keep) / keep)


def _native_dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """ATen's `native_dropout_cpu`, functionally."""
    if train is False or not x.numel():
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    keep = 1.0 - p
    empty = torch.empty(x.shape, dtype=torch.bool, device=x.device)
    mask = torch.ops.aten.bernoulli.p(empty, keep)
    return x.mul(mask).mul(1 / keep if keep else 0.0), mask


DROPOUT: dict[torch._ops.OperatorBase, Callable[..., Any]] = {
    torch.ops.aten.native_dropout.default: _native_dropout
}


@contextlib.contextmanager
def eager_draws() -> Iterator[None]:
    """Take dropout apart as eager's CPU kernel does, so that only its draw need be left to the framework, and keep
    draws that nobody reads, which move the generator.

    The framework's own definition of dropout for tracing goes through `native_dropout`, which rounds otherwise; it is
    no entry of the decomposition table, which this operator never reaches.
    """
    op = torch.ops.aten.dropout.default
    held = dict(op.py_kernels)
    op.py_kernels.update(dict.fromkeys(held, _dropout))
    op._dispatch_cache.clear()
    try:
        with inductor.patch(fallback_random=True):  # the flag by which tracing decides
            yield
    finally:
        op.py_kernels.update(held)
        op._dispatch_cache.clear()


@contextlib.contextmanager
def our_rules() -> Iterator[None]:
    """Keep operators with a lowering from being taken apart by a definition in Python that the framework registers for
    their autograd (`softshrink`, `hardshrink`), with other formulas than its kernels'; no table has these either."""
    held = [(op, op.py_kernels.pop(AUTOGRAD)) for op in _lowered() if AUTOGRAD in op.py_kernels]
    for op, _ in held:
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernel in held:
            op.py_kernels[AUTOGRAD] = kernel
            op._dispatch_cache.clear()


def _is_unknown_composite(op: Op) -> bool:
    name = target_name(op)
    cls, code = boundary(name, Unlowered(""))
    return name not in LOWERINGS and cls == "opaque" and code in ("F601", "F610") and _is_composite(op)


@contextlib.contextmanager
def looking_only_at(composites: Collection[Op]) -> Iterator[None]:
    """Let the framework look only at the composites that matter; others are taken apart by their own definitions.

    It would otherwise list and patch all 1,400 of them at every call, which takes two thirds of a small capture.
    """
    found = getattr(exported, "_collect_all_valid_cia_ops", None)
    if found is None:
        yield
        return
    setattr(exported, found.__name__, lambda: set(composites))
    try:
        yield
    finally:
        setattr(exported, found.__name__, found)


def preservable(ops: Iterable[Any]) -> set[Op]:
    """Those of `ops` that are composites and may be kept whole."""
    from torch._export.utils import _is_preservable_cia_op

    return {op for op in set(ops) if _is_preservable_cia_op(op)}


@functools.cache
def _known_composites() -> frozenset[Op]:
    """Composites with a lowering, and contractions: kept whole inside others, too."""
    packets = [getattr(torch.ops.aten, name) for name in sorted(CONTRACT)]
    contractions = [getattr(p, o) for p in packets for o in p.overloads()]
    return frozenset(preservable((*_lowered(), *contractions)))


@functools.cache
def _lowered() -> tuple[Op, ...]:
    """The framework's operators with a lowering."""
    ops = (resolve(t) for t in LOWERINGS if t.startswith("aten."))
    return tuple(op for op in ops if isinstance(op, Op))
