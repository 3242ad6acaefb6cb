"""`capture`: a user's function or module → graph IR, through `torch.export`."""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram, _trace

from fusebound.capture.branches import check_branches
from fusebound.capture.captured import Captured, Getter, seed_holder
from fusebound.capture.checks import check_sizes
from fusebound.capture.convert import Converted, convert
from fusebound.capture.decompose import decompose
from fusebound.capture.in_place import check_in_place, drop_identities
from fusebound.capture.overlap import overlapping_mutation, separated
from fusebound.capture.rows import distinct_rows
from fusebound.capture.source import full_stacks
from fusebound.capture.traps import watched
from fusebound.capture.types import check_types
from fusebound.capture.wrap import check_arguments, unwrapped, wrap
from fusebound.ir.graph import Graph, Source

# Tracing patches process-wide state of the framework.
_LOCK = threading.RLock()


def capture(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str = "",
) -> Captured:
    """Trace `fn` once on example arguments, without gradients.

    Raises CaptureError, naming the user's line, for a function that cannot be captured truthfully, and UsageError
    (E120) for arguments that it does not take.
    """
    fn, kwargs = unwrapped(fn), dict(kwargs or {})
    check_arguments(fn, args, kwargs)
    module = fn if isinstance(fn, torch.nn.Module) else wrap(fn)
    state = [*module.parameters(), *module.buffers()]
    apart, apart_kwargs, met = separated(tuple(args), kwargs, state)
    with _LOCK, _quiet(), torch.no_grad(), full_stacks(), distinct_rows(), watched(fn, module):
        program = torch.export.export(module, apart, apart_kwargs or None, strict=False)
        check_in_place(program.graph)
        check_types(program.graph_module)
        drop_identities(program)
        check_branches(program.graph_module)
        check_sizes(program.graph_module)
        functional = decompose(program)
        converted = convert(functional, program, name or _name_of(fn))
    captured = _captured(fn, module, program, functional, converted, kwargs)
    _check_overlap(captured, met)
    return captured


def trace(fn: Callable[..., Any], args: tuple[Any, ...]) -> ExportedProgram:
    """The undecomposed program of a function that is known to have no side effects."""
    with _LOCK, _quiet(), torch.no_grad():
        return torch.export.export(wrap(fn), args, strict=False)


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
        converted.modules, dict(_state(converted.graph, module, functional)),
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
        elif i.kind == "seed":
            yield i.value, seed_holder()


def _name_of(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", type(fn).__name__).strip("<>")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Export's warnings and logged graphs are about its own internals; errors still reach the user."""
    loggers = [x for x in logging.root.manager.loggerDict.values() if isinstance(x, logging.Logger)]
    handlers = [(h, h.level) for x in loggers if x.name.partition(".")[0] == "torch" for h in x.handlers]
    for handler, _ in handlers:
        handler.setLevel(logging.CRITICAL + 1)
    # On an error this module prints the graph so far to stderr, where our diagnostic belongs.
    _trace.print = lambda *args, **kwargs: None  # type: ignore[attr-defined]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _trace.__dict__.pop("print", None)
        for handler, level in handlers:
            handler.setLevel(level)


__all__ = ["Captured", "capture", "trace"]
