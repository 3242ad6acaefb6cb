"""`capture`: a user's function or module → graph IR, through `torch.export`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import operator
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from fusebound.capture.classes import boundary
from fusebound.capture.convert import Converted, convert, target_name
from fusebound.capture.lower import LOWERINGS, Unlowered
from fusebound.capture.source import full_stacks
from fusebound.capture.traps import check_in_place, overlapping_mutation, separated, watched
from fusebound.errors import CaptureError, UsageError
from fusebound.ir.graph import Graph, Ref, Source

Getter = Callable[[], Any]

# Tracing patches process-wide state of the framework.
_LOCK = threading.RLock()


@dataclass(frozen=True)
class Captured:
    """A captured function: its graph, the framework's programs that it came from, and how to call it.

    `program` is the undecomposed program (the oracle's), `functional` the one that the graph mirrors; both are
    None for a graph that was loaded from a file. `constants` are the Python numbers among the arguments that
    capture baked in: `bind` refuses other ones.
    """

    graph: Graph
    program: ExportedProgram | None
    functional: ExportedProgram | None
    fn: Callable[..., Any]
    constants: tuple[tuple[str, Any], ...] = ()
    returns: tuple[Any, ...] = ()
    in_spec: TreeSpec | None = None
    out_spec: TreeSpec | None = None
    keywords: tuple[str, ...] = ()
    user_inputs: tuple[str | None, ...] = ()
    modules: Mapping[str, torch.nn.Module] = field(default_factory=dict)
    state: Mapping[str, Getter] = field(default_factory=dict)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """Tensors and numbers in the order of `graph.inputs`; parameters and buffers by reference.

        Raises UsageError if the arguments' structure differs from the captured one, CaptureError (E207) if a
        baked number does.
        """
        flat, spec = self._flatten(args, kwargs or {})
        if spec != self.in_spec:
            raise UsageError(
                "the arguments are structured differently from the captured ones", code="E120",
                hint=f"captured with {self.in_spec}",
            )  # fmt: skip
        baked = iter(self.constants)
        given: dict[str, Any] = {}
        for id, value in zip(self.user_inputs, flat, strict=True):
            if id is not None:
                given[id] = value
                continue
            name, constant = next(baked)
            if not _same_constant(constant, value):
                raise CaptureError(
                    f"argument {name} was {constant!r} at capture and is {value!r} now", code="E207",
                    hint="capture again: Python numbers are part of the captured graph",
                )  # fmt: skip
        return [self.state[i.value]() if i.kind != "user" else given[i.value] for i in self.graph.inputs]

    def _flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], TreeSpec]:
        if set(kwargs) == set(self.keywords):
            kwargs = {k: kwargs[k] for k in self.keywords}
        return tree_flatten((tuple(args), dict(kwargs)))

    def unflatten(self, outputs: Sequence[Any]) -> Any:
        """The user's structure, from values in the order of `graph.outputs`."""
        values = iter(outputs)
        flat = [next(values) if isinstance(r, Ref) else r for r in self.returns]
        if self.out_spec is None:
            return flat[0] if len(flat) == 1 else tuple(flat)
        return tree_unflatten(flat, self.out_spec)


def _same_constant(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b or (a != a and b != b))


def capture(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str = "",
) -> Captured:
    """Trace `fn` once on example arguments, without gradients.

    Raises CaptureError, naming the user's line, for a function that cannot be captured truthfully.
    """
    kwargs = dict(kwargs or {})
    module = fn if isinstance(fn, torch.nn.Module) else wrap(fn)
    state = [*module.parameters(), *module.buffers()]
    apart, apart_kwargs, met = separated(tuple(args), kwargs, state)
    with _LOCK, _quiet(), torch.no_grad(), full_stacks(), watched(fn, module):
        program = torch.export.export(module, apart, apart_kwargs or None, strict=False)
        check_in_place(program.graph)
        functional = _decompose(program)
        converted = convert(functional, program, name or _name_of(fn))
    captured = _captured(fn, module, program, functional, converted, kwargs)
    _check_overlap(captured, met)
    return captured


def _decompose(program: ExportedProgram) -> ExportedProgram:
    """Functionalised, composites whole; composites without a lowering are taken apart if that gives known pieces."""
    functional = program.run_decompositions({})
    unknown = {n.target for n in functional.graph.nodes if _is_unknown_composite(n)}
    if not unknown:
        return functional
    taken_apart = program.run_decompositions({op: _composite(op) for op in unknown})
    before = {n.target for n in functional.graph.nodes}
    pieces = [n for n in taken_apart.graph.nodes if n.op == "call_function" and n.target not in before]
    known = all(target_name(n.target) in LOWERINGS or n.target is operator.getitem for n in pieces)
    return taken_apart if known else functional


def _composite(op: torch._ops.OpOverload) -> Callable[..., Any]:
    """The operator's own definition in terms of others."""
    return functools.partial(op._op_dk, torch._C.DispatchKey.CompositeImplicitAutograd)


def _is_unknown_composite(node: torch.fx.Node) -> bool:
    op = node.target
    if node.op != "call_function" or not isinstance(op, torch._ops.OpOverload):
        return False
    name = target_name(op)
    if name in LOWERINGS or boundary(name, Unlowered("")) != ("opaque", "F601"):
        return False
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


def _check_overlap(captured: Captured, met: set[int]) -> None:
    """Refuse arguments that share memory if one of them is mutated."""
    mutated = {m.target: m.source for m in captured.graph.mutations}
    for i in sorted(met):
        id = captured.user_inputs[i]
        if id in mutated:
            writer = captured.graph.producer.get(mutated[id])
            source = captured.graph.user[writer.user].source if writer else Source()
            raise overlapping_mutation(id, source)


def _captured(
    fn: Callable[..., Any], module: torch.nn.Module, program: ExportedProgram, functional: ExportedProgram,
    converted: Converted, kwargs: Mapping[str, Any],
) -> Captured:  # fmt: skip
    spec = functional.call_spec
    ids = {i.value for i in converted.graph.inputs}
    users = [n for n, s in _user_placeholders(functional)]
    return Captured(
        converted.graph, program, functional, fn, converted.constants, converted.returns,
        spec.in_spec, spec.out_spec, tuple(kwargs), tuple(n if n in ids else None for n in users),
        dict(functional.graph_module.named_children()), dict(_state(converted.graph, module, functional)),
    )  # fmt: skip


def _user_placeholders(program: ExportedProgram) -> list[tuple[str, Any]]:
    names = [n.name for n in program.graph.nodes if n.op == "placeholder"]
    specs = program.graph_signature.input_specs
    return [(n, s) for n, s in zip(names, specs, strict=True) if s.kind.name == "USER_INPUT"]


def _state(graph: Graph, module: torch.nn.Module, program: ExportedProgram) -> Iterator[tuple[str, Getter]]:
    """How to fetch each parameter, buffer and constant at every call."""
    for i in graph.inputs:
        if i.kind in ("param", "buffer"):
            path, _, leaf = i.target.rpartition(".")
            owner = module.get_submodule(path)
            yield i.value, lambda owner=owner, leaf=leaf: getattr(owner, leaf)
        elif i.kind == "const":
            tensor = program.constants[i.target]
            yield i.value, lambda tensor=tensor: tensor


def _name_of(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", type(fn).__name__).strip("<>")


class _Function(torch.nn.Module):
    """A plain callable as a module; modules that it reaches are registered, so that parameters have names."""

    def __init__(self, fn: Callable[..., Any], modules: Mapping[str, torch.nn.Module]) -> None:
        super().__init__()
        for name, m in modules.items():
            self.add_module(name, m)
        self.forward = fn if _has_signature(fn) else _variadic(fn)


def _has_signature(fn: Callable[..., Any]) -> bool:
    try:
        inspect.signature(fn)
    except (TypeError, ValueError):
        return False
    return True


def _variadic(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A Python function around a builtin, whose signature the tracer cannot read."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call


def wrap(fn: Callable[..., Any]) -> torch.nn.Module:
    """The callable as a module, with the modules of its closure, globals and `__self__` as children."""
    return _Function(fn, reached(fn))


def reached(fn: Callable[..., Any]) -> dict[str, torch.nn.Module]:
    """Modules that a function names: closure variables, globals, the object of a bound method."""
    found: dict[str, torch.nn.Module] = {}
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        found["self"] = owner
    inner = inspect.unwrap(getattr(fn, "__func__", fn))
    code = getattr(inner, "__code__", None)
    if code is not None:
        cells = dict(zip(code.co_freevars, inner.__closure__ or (), strict=False))
        for n, cell in cells.items():
            with contextlib.suppress(ValueError):  # an empty cell
                if isinstance(cell.cell_contents, torch.nn.Module):
                    found[n] = cell.cell_contents
        for n in code.co_names:
            if isinstance(inner.__globals__.get(n), torch.nn.Module):
                found[n] = inner.__globals__[n]
    return found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Export's warnings and logged graphs are about its own internals; errors still reach the user."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


__all__ = ["CaptureError", "Captured", "capture", "wrap"]
