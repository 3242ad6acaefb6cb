"""A functional exported program → the graph IR: one user operator per framework call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputSpec

from fusebound.capture import draws, lists, strides
from fusebound.capture.checks import unlock
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
from fusebound.capture.lower import NUMBERS, Ctx, T, Unlowered
from fusebound.capture.lower.apply import Call, kind_of, lower, prune, settle
from fusebound.capture.metadata import explicit
from fusebound.capture.registry import CUSTOM
from fusebound.capture.source import scope_of, shown, source_of, written_as
from fusebound.errors import CaptureError
from fusebound.ir.builder import Builder
from fusebound.ir.control import MODULE
from fusebound.ir.graph import Attr, Graph, Mutation, Ref, Token, refs

_KINDS = {
    InputKind.PARAMETER: "param",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "const",
    InputKind.USER_INPUT: "user",
}
_ROLES = {"higher_order.cond": ("true", "false"), "higher_order.while_loop": ("test", "body")}
_DATA: tuple[type, ...] = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
_BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"

Held = str | list[str | None]
"""A value id, or one for each of several outputs (None for an output that nobody reads)."""


@dataclass(frozen=True, slots=True)
class Converted:
    """The graph, what the user's function returns (references to values or constants, flat), and the framework's
    form of the subgraphs, by name."""

    graph: Graph
    returns: tuple[Ref | Any, ...]
    constants: tuple[tuple[str, Any], ...]
    modules: dict[str, torch.fx.GraphModule]


def convert(functional: ExportedProgram, program: ExportedProgram, name: str) -> Converted:
    """Convert; `program` is the undecomposed one that the functional one came from.

    Raises CaptureError (E208) for an input that is neither a tensor nor a plain Python value.
    """
    return _Converter(functional.graph_module, program.graph_module, name, {}).run(functional)


class _Converter:
    def __init__(
        self, functional: torch.fx.GraphModule, written: torch.fx.GraphModule, name: str,
        modules: dict[str, torch.fx.GraphModule],
    ) -> None:  # fmt: skip
        self.functional, self.written = functional, written
        self.originals = {n.name: n for n in written.graph.nodes if n.op == "call_function"}
        self.builder = Builder(name)
        self.env: dict[torch.fx.Node, Held] = {}
        self.constants: dict[torch.fx.Node, Any] = {}
        self.named: dict[torch.fx.Node, str] = {}
        self.modules = modules
        lists.split(functional.graph)
        self.live = live(functional.graph)
        strides.settle(functional.graph, self.originals)

    def run(self, program: ExportedProgram) -> Converted:
        """The whole program."""
        signature = program.graph_signature
        mutated = {o.target for o in signature.output_specs}
        placeholders = [n for n in self.functional.graph.nodes if n.op == "placeholder"]
        for node, spec in zip(placeholders, signature.input_specs, strict=True):
            if isinstance(spec.arg, ConstantArgument):
                self.constants[node] = spec.arg.value
            elif node in self.live or spec.kind == InputKind.USER_INPUT or spec.target in mutated:
                self._input(node, spec)
        self.builder.draws_by_counter = not draws.draws_in_branches(self.functional.graph)
        self._calls()
        returns, mutations = self._results(signature.output_specs)
        outputs = [r.id for r in returns if isinstance(r, Ref)]
        baked = tuple((n.name, value) for n, value in self.constants.items())
        return Converted(self.builder.finish(outputs, mutations), returns, baked, self.modules)

    def subgraph(self) -> Graph | None:
        """A branch or a loop's body as a graph of all its operands; None where an operand is no tensor or number, or a
        result a constant."""
        self.builder.draws_by_counter = False
        self.builder.draws_by_counter = False
        placeholders = [n for n in self.functional.graph.nodes if n.op == "placeholder"]
        if not all(isinstance(n.meta.get("val"), (*_DATA, bool, int, float)) for n in placeholders):
            return None
        for node in placeholders:
            v = value_of(node.name, node.meta["val"])
            self.builder.input(
                v.id, v.shape, v.dtype, v.strides, "user", node.name, v.device, scalar=v.scalar
            )
            self.env[node] = node.name
        self._calls()
        (output,) = (n for n in self.functional.graph.nodes if n.op == "output")
        results: Any = output.args[0]
        results = [results] if isinstance(results, torch.fx.Node) else results
        held = [self._ref(r) if isinstance(r, torch.fx.Node) else r for r in results]
        outputs = [r.id for r in held if isinstance(r, Ref)]
        return self.builder.finish(outputs) if len(outputs) == len(held) else None

    def _calls(self) -> None:
        for node in self.functional.graph.nodes:
            if node.op == "call_function" and node in self.live:
                self._call(node)

    def _input(self, node: torch.fx.Node, spec: InputSpec) -> None:
        kind = _KINDS.get(spec.kind)
        if kind is None:
            raise CaptureError(f"an input of kind {spec.kind.name} ({node.name})", code="E208")
        v = value_of(node.name, node.meta["val"])
        self.builder.input(v.id, v.shape, v.dtype, v.strides, kind, spec.target or node.name, v.device)
        self.env[node] = node.name

    def _results(self, specs: Sequence[OutputSpec]) -> tuple[tuple[Any, ...], list[Mutation]]:
        (output,) = (n for n in self.functional.graph.nodes if n.op == "output")
        by_target = {i.target: i.value for i in self.builder.inputs}
        returns: list[Any] = []
        mutations: list[Mutation] = []
        results: Any = output.args[0]
        for arg, spec in zip(results, specs, strict=True):
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
        name = self._begin(user_name(node, written))
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            self._nested(node, written, name)
        self._operator(node, target, wrote, name)

    def _operator(self, node: torch.fx.Node, target: str, wrote: str, name: str) -> None:
        """Add the user operator of a call: its primitives, or one node that the framework runs."""
        args, kwargs, val = node.args, node.kwargs, node.meta.get("val")
        if draws.makes_own_memory(node, target):
            target, args, kwargs, val = draws.own_memory(node, target, wrote)
        many = isinstance(val, list | tuple)
        vals: list[Any] = [*val] if isinstance(val, list | tuple) else [] if val is None else [val]
        if target == _BATCH_NORM and used_outputs(node, self.live) == {0}:
            # The user's batch_norm: what it saves for the backward pass is empty at inference.
            target, vals = "aten.batch_norm.default", vals[:1]
            args = (*args[:5], False, *args[5:7], False)
        if any(isinstance(v, list | tuple) for v in vals):
            raise CaptureError(
                f"{target} returns lists inside a tuple", where=shown(source_of(node)), code="E208"
            )
        kept = [i for i, v in enumerate(vals) if isinstance(v, _DATA)]
        results = tuple(value_of("", vals[i]) for i in kept)
        call = Call(target, args, kwargs, results, (*_operands(node), *vals))
        encoded = [encode(a, self._ref) for a in args]
        named = [(k, encode(a, self._ref)) for k, a in kwargs.items()]

        start = len(self.builder.nodes)
        try:
            if isinstance(val, torch.SymFloat) and any(_takes_python(u) for u in node.users):
                raise Unlowered("a number that Python gets", "F602")
            found = lower(self.builder, call, partial(self._handle, target))
        except Unlowered as reason:
            prune(self.builder, start)
            kind, why = boundary(target, reason)
            outs = self._boundary(
                node, call, [*encoded, *(a for _, a in named)], reason, draws.consumes(node)
            )
        else:
            if len(vals) > 1:
                kept = [i for i in kept if i in used_outputs(node, self.live)]
            wanted = [value_of("", vals[i]) for i in kept]
            own = many or any(u.op == "output" for u in node.users)
            outs = settle(self.builder, start, name, [found[i] for i in kept], wanted, own=own)
            kind, why = kind_of(self.builder.nodes[start:]), ""
            if len(results) == 1:
                target, encoded, named = explicit(target, encoded, named, results[0])
            if len(self.builder.nodes) == start:
                # A view to the same shape, say: the operator does nothing, and is not in the graph (unless it is
                # returned, as a tensor of its own).
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
        taken = any(i.value == name for i in self.builder.inputs)
        return self.builder.begin(f"{name}_op" if taken else name)

    def _nested(self, node: torch.fx.Node, written: torch.fx.Node | None, name: str) -> None:
        """Name the subgraphs that control flow runs (`cond.true`, in it `cond.true/cond_1.false`), and convert those
        of which it is known how they are run."""
        inner = [a for a in node.args if isinstance(a, torch.fx.Node) and a.op == "get_attr"]
        theirs = [a for a in written.args if isinstance(a, torch.fx.Node)] if written is not None else []
        theirs = [a for a in theirs if a.op == "get_attr"]
        roles = _ROLES.get(target_name(node.target), tuple(str(i) for i in range(len(inner))))
        path = f"{self.builder.name}/" if self.builder.name in self.modules else ""
        made: dict[str, Graph | None] = {}
        for a, original, role in zip(
            inner, theirs if len(theirs) == len(inner) else inner, roles, strict=True
        ):
            label = self.named[a] = f"{path}{name}.{role}"
            module = self.functional.get_submodule(str(a.target))
            assert isinstance(module, torch.fx.GraphModule)
            self.modules[label] = module
            before = self.written.get_submodule(str(original.target)) if original is not a else module
            assert isinstance(before, torch.fx.GraphModule)
            if target_name(node.target) in _ROLES:
                made[label] = _Converter(module, before, label, self.modules).subgraph()
        known = {label: g for label, g in made.items() if g is not None}
        if len(known) == len(made):
            self.builder.subgraphs.update(known)

    def _boundary(
        self, node: torch.fx.Node, call: Call, encoded: list[Attr], reason: Unlowered, drawing: bool
    ) -> list[str]:
        operands = tuple(dict.fromkeys(r for a in encoded for r in refs(a)))
        custom = CUSTOM.get(call.target)
        attrs: dict[str, Attr] = {"reason": str(reason)}
        if drawing:
            attrs["draws"] = True
        if hint := unlock(node):
            attrs["unlock"] = hint
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
            return Token(MODULE + self.named[node])
        if node in self.constants:
            return self.constants[node]
        held = self.env[node]
        if isinstance(held, list):
            return tuple(Ref(h) if h else None for h in held)
        return Ref(held)

    def _handle(self, target: str, ctx: Ctx, x: Any) -> Any:
        """What a lowering sees of an argument: tensors as `T`, and numbers of the run where it takes such; Python
        values as they are."""
        if isinstance(x, list | tuple):
            return [self._handle(target, ctx, i) for i in x]
        if not isinstance(x, torch.fx.Node):
            return x
        if x in self.constants:
            return self.constants[x]
        held = self.env[x]
        if not isinstance(held, str) or (self.builder.values[held].scalar and target not in NUMBERS):
            raise Unlowered("a number that is known only at run time", "F602")
        return T(held, ctx)


def _takes_python(node: torch.fx.Node) -> bool:
    """Whether a number goes out of the graph here, as the Python object that it is."""
    return node.op == "output" or isinstance(node.target, torch._ops.HigherOrderOperator)


def _operands(node: torch.fx.Node) -> list[Any]:
    """What the tracer saw of the node's operands, flat."""
    vals = [n.meta["val"] for n in node.all_input_nodes if "val" in n.meta]
    return [v for o in vals for v in (o if isinstance(o, list | tuple) else [o])]
