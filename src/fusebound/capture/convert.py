"""A functional exported program → the graph IR: one user operator per framework call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec

from fusebound.capture.classes import boundary
from fusebound.capture.encode import encode, value_of
from fusebound.capture.fxnodes import (
    IDENTITY_AT_INFERENCE,
    SKIPPED,
    live,
    target_name,
    used_outputs,
    user_name,
)
from fusebound.capture.lower import Ctx, T, Unlowered
from fusebound.capture.lower.apply import Call, kind_of, lower, prune, settle
from fusebound.capture.metadata import explicit
from fusebound.capture.registry import CUSTOM
from fusebound.capture.source import scope_of, source_of, written_as
from fusebound.errors import CaptureError
from fusebound.ir.builder import Builder
from fusebound.ir.graph import Attr, Graph, Mutation, Ref, Token, refs

_KINDS = {
    InputKind.PARAMETER: "param",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "const",
    InputKind.USER_INPUT: "user",
}
_DATA: tuple[type, ...] = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
_BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"

Held = str | list[str | None]
"""A value id, or one for each of several outputs (None for an output that nobody reads)."""


@dataclass(frozen=True, slots=True)
class Converted:
    """The graph, and what the user's function returns: references to values or constants, flat."""

    graph: Graph
    returns: tuple[Ref | Any, ...]
    constants: tuple[tuple[str, Any], ...]


def convert(functional: ExportedProgram, program: ExportedProgram, name: str) -> Converted:
    """Convert; `program` is the undecomposed one that the functional one came from.

    Raises CaptureError (E208) for an input that is neither a tensor nor a plain Python value.
    """
    return _Converter(functional, program, name).run()


class _Converter:
    def __init__(self, functional: ExportedProgram, program: ExportedProgram, name: str) -> None:
        self.program = functional
        self.originals = {n.name: n for n in program.graph.nodes if n.op == "call_function"}
        self.builder = Builder(name)
        self.env: dict[torch.fx.Node, Held] = {}
        self.constants: dict[torch.fx.Node, Any] = {}
        self.live = live(functional.graph)

    def run(self) -> Converted:
        mutated = {o.target for o in self.program.graph_signature.output_specs}
        placeholders = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        for node, spec in zip(placeholders, self.program.graph_signature.input_specs, strict=True):
            if isinstance(spec.arg, ConstantArgument):
                self.constants[node] = spec.arg.value
            elif node in self.live or spec.kind == InputKind.USER_INPUT or spec.target in mutated:
                self._input(node, spec)
        for node in self.program.graph.nodes:
            if node.op == "call_function" and node in self.live:
                self._call(node)
        returns, mutations = self._results()
        outputs = [r.id for r in returns if isinstance(r, Ref)]
        baked = tuple((n.name, value) for n, value in self.constants.items())
        return Converted(self.builder.finish(outputs, mutations), returns, baked)

    def _input(self, node: torch.fx.Node, spec: InputSpec) -> None:
        kind = _KINDS.get(spec.kind)
        if kind is None:
            raise CaptureError(f"an input of kind {spec.kind.name} ({node.name})", code="E208")
        v = value_of(node.name, node.meta["val"])
        self.builder.input(v.id, v.shape, v.dtype, v.strides, kind, spec.target or node.name, v.device)
        self.env[node] = node.name

    def _results(self) -> tuple[tuple[Any, ...], list[Mutation]]:
        (output,) = (n for n in self.program.graph.nodes if n.op == "output")
        by_target = {i.target: i.value for i in self.builder.inputs}
        returns: list[Any] = []
        mutations: list[Mutation] = []
        results: Any = output.args[0]
        for arg, spec in zip(results, self.program.graph_signature.output_specs, strict=True):
            held = self._ref(arg) if isinstance(arg, torch.fx.Node) else arg
            if spec.kind.name.endswith("MUTATION"):
                assert isinstance(held, Ref) and spec.target is not None
                mutations.append(Mutation(by_target[spec.target], held.id))
            else:
                returns.append(held)
        return tuple(returns), mutations

    # -- one call

    def _call(self, node: torch.fx.Node) -> None:
        target = target_name(node.target)
        if target in SKIPPED:
            return
        written = written_as(node, self.originals)
        wrote = target_name(written.target) if written is not None else ""
        first = node.args[0] if node.args else None
        if isinstance(first, torch.fx.Node):
            held = self.env.get(first)
            index = node.args[1] if len(node.args) > 1 else None
            if target == "operator.getitem" and isinstance(held, list) and isinstance(index, int):
                self.env[node] = held[index] or ""
                return
            if target == "aten.clone.default" and wrote in IDENTITY_AT_INFERENCE and held is not None:
                self.env[node] = held
                return
        self._operator(node, target, wrote, user_name(node, written))

    def _operator(self, node: torch.fx.Node, target: str, wrote: str, name: str) -> None:
        """Add the user operator of a call: its primitives, or one node that the framework runs."""
        args, kwargs, val = node.args, node.kwargs, node.meta.get("val")
        many = isinstance(val, list | tuple)
        vals: list[Any] = [*val] if isinstance(val, list | tuple) else [] if val is None else [val]
        if target == _BATCH_NORM:
            # The user's batch_norm: what it saves for the backward pass is empty at inference.
            target, vals = "aten.batch_norm.default", vals[:1]
            args = (*args[:5], False, *args[5:7], False)
        kept = [i for i, v in enumerate(vals) if isinstance(v, _DATA)]
        results = tuple(value_of("", vals[i]) for i in kept)
        call = Call(target, args, kwargs, results, (*_operands(node), *vals))
        encoded = [encode(a, self._ref) for a in args]
        named = [(k, encode(a, self._ref)) for k, a in kwargs.items()]

        name = self._begin(name)
        start = len(self.builder.nodes)
        try:
            found = lower(self.builder, call, self._handle)
        except Unlowered as reason:
            prune(self.builder, start)
            kind, why = boundary(target, reason)
            outs = self._boundary(call, [*encoded, *(a for _, a in named)], reason)
        else:
            if len(vals) > 1:
                kept = [i for i in kept if i in used_outputs(node, self.live)]
            wanted = [value_of("", vals[i]) for i in kept]
            outs = settle(self.builder, start, name, [found[i] for i in kept], wanted, own=many)
            kind, why = kind_of(self.builder.nodes[start:]), ""
            if len(results) == 1:
                target, encoded, named = explicit(target, encoded, named, results[0])
            if len(self.builder.nodes) == start:
                # A view to the same shape, say: the operator does nothing, and is not in the graph.
                self.builder.abandon()
                self.env[node] = outs[0]
                return
        self._hold(node, many, len(vals), kept, outs)
        if len(kept) < len(vals):
            target = f"{target}[{','.join(map(str, kept))}]"
        self.builder.end(
            target, encoded, named, outs, kind, scope_of(node), source_of(node),
            wrote if wrote != target else "", why,
        )  # fmt: skip

    def _begin(self, name: str) -> str:
        """Open the operator under a name that no input has."""
        return self.builder.begin(f"{name}_op" if name in self.builder.values else name)

    def _boundary(self, call: Call, encoded: list[Attr], reason: Unlowered) -> list[str]:
        operands = tuple(dict.fromkeys(r for a in encoded for r in refs(a)))
        custom = CUSTOM.get(call.target)
        attrs: dict[str, Attr] = {"reason": str(reason)}
        if custom is not None and custom.maps:
            attrs["maps"] = custom.shown
        return list(self.builder.opaque(call.target, operands, call.results, **attrs))

    def _hold(self, node: torch.fx.Node, many: bool, count: int, kept: list[int], outs: list[str]) -> None:
        if not many:
            self.env[node] = outs[0] if outs else ""
            return
        slots: list[str | None] = [None] * count
        for i, o in zip(kept, outs, strict=True):
            slots[i] = o
        self.env[node] = slots

    # -- arguments

    def _ref(self, node: torch.fx.Node) -> Attr:
        if node.op == "get_attr":
            return Token(f"module:{node.target}")
        if node in self.constants:
            return self.constants[node]
        held = self.env[node]
        if isinstance(held, list):
            return tuple(Ref(h) if h else None for h in held)
        return Ref(held)

    def _handle(self, ctx: Ctx, x: Any) -> Any:
        """What a lowering sees of an argument: tensors as `T`, Python values as they are."""
        if isinstance(x, list | tuple):
            return [self._handle(ctx, i) for i in x]
        if not isinstance(x, torch.fx.Node):
            return x
        if x in self.constants:
            return self.constants[x]
        held = self.env[x]
        if not isinstance(held, str) or self.builder.values[held].scalar:
            raise Unlowered("a number that is known only at run time", "F602")
        return T(held, ctx)


def _operands(node: torch.fx.Node) -> list[Any]:
    """What the tracer saw of the node's operands, flat."""
    vals = [n.meta["val"] for n in node.all_input_nodes if "val" in n.meta]
    return [v for o in vals for v in (o if isinstance(o, list | tuple) else [o])]
