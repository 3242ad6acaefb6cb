"""`capture`: a user's function or module → graph IR, through `torch.export`."""

from __future__ import annotations

import contextlib
import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from fusebound.capture.convert import Converted, convert
from fusebound.errors import CaptureError, UsageError
from fusebound.ir.graph import Graph, Ref

Getter = Callable[[], Any]


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

        Raises UsageError if the arguments' structure or a baked number differs from the captured one.
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
                raise UsageError(
                    f"argument {name} was {constant!r} at capture and is {value!r} now", code="E121",
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
    with _quiet(), torch.no_grad():
        program = _export(module, tuple(args), kwargs)
        functional = program.run_decompositions({})
    converted = convert(functional, program, name or _name_of(fn))
    return _captured(fn, module, program, functional, converted, kwargs)


def _export(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedProgram:
    return torch.export.export(module, args, kwargs or None, strict=False)


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
        self.forward = fn


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
