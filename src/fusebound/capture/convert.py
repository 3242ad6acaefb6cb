"""A functional exported program → the graph IR: one user operator per framework call."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec

from fusebound.capture import replay
from fusebound.capture.classes import boundary
from fusebound.capture.encode import encode, refs, value_of
from fusebound.capture.lower import LOWERINGS, Ctx, T, Unlowered
from fusebound.capture.registry import CUSTOM
from fusebound.capture.source import scope_of, source_of, written_as
from fusebound.errors import CaptureError
from fusebound.ir.builder import Builder
from fusebound.ir.dtypes import KERNEL_DTYPES
from fusebound.ir.graph import Attr, Graph, Mutation, Node, Ref, Token, UserOp, Value
from fusebound.ir.ops import OPS, OpClass

_KINDS = {
    InputKind.PARAMETER: "param",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "const",
    InputKind.USER_INPUT: "user",
}
_SKIPPED = frozenset(
    "aten._assert_tensor_metadata.default aten._assert_scalar.default aten.sym_constrain_range.default "
    "aten.sym_constrain_range_for_size.default aten._assert_async.msg".split()
)
_IDENTITY_AT_INFERENCE = frozenset(
    f"aten.{n}.default"
    for n in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "rrelu")
)
_DATA: tuple[type, ...] = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)

Held = str | list[str | None]


@dataclass(frozen=True, slots=True)
class Converted:
    """The graph, and what the user's function returns: value ids of the graph or constants, flat."""

    graph: Graph
    returns: tuple[Ref | Any, ...]
    constants: tuple[tuple[str, Any], ...]


def target_name(target: object) -> str:
    """`aten.add.Tensor`, `operator.mul`, `torch.sym_max`, `higher_order.cond`."""
    if isinstance(target, torch._ops.OpOverload):
        replay.allow(target.namespace)
        return f"{target.namespace}.{target._opname}.{target._overloadname}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    name = getattr(target, "__name__", str(target))
    if getattr(operator, name, None) is target:
        return f"operator.{name}"
    if getattr(math, name, None) is target:
        return f"math.{name}"
    return f"torch.{name}"


def convert(functional: ExportedProgram, program: ExportedProgram, name: str) -> Converted:
    """Convert; `program` is the undecomposed one that the functional one came from."""
    return _Converter(functional, program, name).run()


class _Converter:
    def __init__(self, functional: ExportedProgram, program: ExportedProgram, name: str) -> None:
        self.program = functional
        self.originals = {n.name: n for n in program.graph.nodes if n.op == "call_function"}
        self.builder = Builder(name)
        self.env: dict[torch.fx.Node, Held] = {}
        self.constants: dict[torch.fx.Node, Any] = {}
        self.live = _live(functional.graph)

    def run(self) -> Converted:
        placeholders = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        baked = []
        for node, spec in zip(placeholders, self.program.graph_signature.input_specs, strict=True):
            if isinstance(spec.arg, ConstantArgument):
                self.constants[node] = spec.arg.value
                baked.append((node.name, spec.arg.value))
            else:
                self._input(node, spec)
        for node in self.program.graph.nodes:
            if node.op == "call_function" and node in self.live:
                self._call(node)
        returns, mutations = self._results()
        outputs = [r.id for r in returns if isinstance(r, Ref)]
        return Converted(self.builder.finish(outputs, mutations), returns, tuple(baked))

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
        for arg, spec in zip(output.args[0], self.program.graph_signature.output_specs, strict=True):  # type: ignore[arg-type]
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
        if target in _SKIPPED:
            return
        if target == "operator.getitem":
            source, index = node.args
            held = self.env[source]  # type: ignore[index]
            if isinstance(held, list):
                self.env[node] = held[index] or ""  # type: ignore[index,call-overload]
                return
        written = written_as(node, self.originals)
        wrote = target_name(written.target) if written is not None else ""
        if target == "aten.clone.default" and wrote in _IDENTITY_AT_INFERENCE:
            self.env[node] = self.env[node.args[0]]  # type: ignore[index]
            return
        self._operator(node, target, written, wrote)

    def _operator(self, node: torch.fx.Node, target: str, written: torch.fx.Node | None, wrote: str) -> None:
        raw_args, raw_kwargs = node.args, node.kwargs
        val = node.meta.get("val")
        many = isinstance(val, list | tuple)
        vals: list[Any] = list(val) if many else [val]  # type: ignore[arg-type]
        if target == "aten._native_batch_norm_legit_no_training.default":
            # The user's batch_norm; saved statistics are empty at inference.
            target, many, vals = "aten.batch_norm.default", True, vals[:1]
            raw_args = (*raw_args[:5], False, *raw_args[5:7], False)
        if not many and val is None:
            vals = []
        args = tuple(encode(a, self._ref) for a in raw_args)
        kwargs = tuple((k, encode(a, self._ref)) for k, a in raw_kwargs.items())
        kept = [i for i, v in enumerate(vals) if isinstance(v, _DATA)]
        values = [value_of("", vals[i]) for i in kept]
        builder = self.builder
        name = builder.begin(_name(node, target, written))
        start = len(builder.nodes)
        found = self._lowered(node, target, raw_args, raw_kwargs, vals, values)
        if isinstance(found, Unlowered):
            self._roll_back(start)
            kind, why = boundary(target, found)
            operands = tuple(dict.fromkeys(r for a in (*args, *(v for _, v in kwargs)) for r in refs(a)))
            maps = {"maps": CUSTOM[target].shown} if target in CUSTOM and CUSTOM[target].maps else {}
            outs: list[str] = list(builder.opaque(target, operands, values, reason=str(found), **maps))
        else:
            if many and len(found) > 1:
                used = self._used(node)
                kept = [i for i in kept if i in used]
                found = [found[i] for i in kept]
            else:
                kept = kept[: len(found)]
            outs, why = self._define(start, name, found, [value_of("", vals[i]) for i in kept], many), ""
            kind = kind_of(builder.nodes[start:])
            if not many and len(builder.nodes) == start:
                self._forget(name)
                self.env[node] = outs[0]
                return
        self._hold(node, many, len(vals), kept, outs)
        if many and len(kept) < len(vals):
            target = f"{target}[{','.join(map(str, kept))}]"
        builder.end(
            target, args, kwargs, outs, kind, scope_of(node), source_of(node), wrote if wrote != target else "", why
        )  # fmt: skip

    def _forget(self, name: str) -> None:
        """An operator that does nothing (a view to the same shape) is not in the graph."""
        self.builder._names.discard(name)

    def _hold(self, node: torch.fx.Node, many: bool, count: int, kept: list[int], outs: list[str]) -> None:
        if not many:
            self.env[node] = outs[0] if outs else ""
            return
        slots: list[str | None] = [None] * count
        for i, o in zip(kept, outs, strict=True):
            slots[i] = o
        self.env[node] = slots

    def _used(self, node: torch.fx.Node) -> set[int]:
        return {u.args[1] for u in node.users if u in self.live and u.target is operator.getitem}  # type: ignore[misc]

    def _lowered(
        self, node: torch.fx.Node, target: str, args: tuple[Any, ...], kwargs: Mapping[str, Any],
        vals: list[Any], values: list[Value],
    ) -> list[T] | Unlowered:  # fmt: skip
        lower = LOWERINGS.get(target)
        if lower is None:
            return Unlowered(f"no lowering of {target}")
        try:
            operands = [n.meta["val"] for n in node.all_input_nodes if "val" in n.meta]
            flat = [v for o in operands for v in (o if isinstance(o, list | tuple) else [o])]
            _check_supported(flat)
            _check_supported(vals)
            ctx = Ctx(self.builder, tuple(values))
            positional, keyword = self._bind(ctx, target, args, kwargs)
            result = lower(ctx, *positional, **keyword)
            found = list(result) if isinstance(result, list | tuple) else [result]
            _check_results(found, values)
            return found
        except Unlowered as e:
            return e

    def _bind(
        self, ctx: Ctx, target: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Arguments in the schema's order with defaults; keyword-only ones by name."""
        schema = getattr(replay.resolve(target), "_schema")  # noqa: B009
        positional, keyword = [], {}
        for i, a in enumerate(schema.arguments):
            if i < len(args):
                value = args[i]
            elif a.name in kwargs:
                value = kwargs[a.name]
            else:
                value = a.default_value
            value = self._handle(ctx, value)
            if a.kwarg_only:
                keyword[a.name] = value
            else:
                positional.append(value)
        return positional, keyword

    def _handle(self, ctx: Ctx, x: Any) -> Any:
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

    def _define(self, start: int, name: str, found: list[T], values: list[Value], many: bool) -> list[str]:
        """Value ids of the results, with the framework's strides; unused primitives are dropped."""
        own = {o for n in self.builder.nodes[start:] for o in n.outputs}
        outs = []
        for t in found:
            if many and t.id not in own:
                t = T(self.builder.emit("reshape", t.id, shape=t.shape), t.c)
                own.add(t.id)
            outs.append(t.id)
        self._prune(start, outs)
        for id, v in zip(outs, values, strict=True):
            if id in own:
                self.builder.restride(id, v.strides)
        return self._rename(start, name, outs)

    def _rename(self, start: int, name: str, outs: list[str]) -> list[str]:
        """The result is called like the operator, what leads to it `name.1`, `name.2`, …"""
        builder = self.builder
        own = [n.out for n in builder.nodes[start:]]
        if not own:
            return outs
        ids = iter([f"{name}.{i}" for i in range(1, len(own))])
        new = {old: name if old == outs[0] else next(ids) for old in own} if outs[0] in own else {}
        values = {old: builder.values.pop(old) for old in new}
        for old, v in values.items():
            builder.values[new[old]] = replace(v, id=new[old])
        for i in range(start, len(builder.nodes)):
            n = builder.nodes[i]
            inputs = tuple(new.get(x, x) for x in n.inputs)
            builder.nodes[i] = replace(
                n, id=new.get(n.id, n.id), inputs=inputs, outputs=(new.get(n.out, n.out),)
            )
        return [new.get(o, o) for o in outs]

    def _prune(self, start: int, keep: Iterable[str]) -> None:
        needed = set(keep)
        nodes = self.builder.nodes
        for i in range(len(nodes) - 1, start - 1, -1):
            if needed.isdisjoint(nodes[i].outputs):
                for o in nodes[i].outputs:
                    del self.builder.values[o]
                del nodes[i]
            else:
                needed.update(nodes[i].inputs)

    def _roll_back(self, start: int) -> None:
        self._prune(start, ())

    def _ref(self, node: torch.fx.Node) -> Attr:
        if node.op == "get_attr":
            return Token(f"module:{node.target}")
        if node in self.constants:
            return self.constants[node]
        held = self.env[node]
        if isinstance(held, list):
            return tuple(Ref(h) if h else None for h in held)
        return Ref(held)


def _name(node: torch.fx.Node, target: str, written: torch.fx.Node | None) -> str:
    """The traced node's name, or the user's operator where decomposition gave it an internal name."""
    internal = node.name.startswith(("_", "native_"))
    if not internal or written is None:
        return node.name.lstrip("_") if internal else node.name
    stem = written.target._opname if isinstance(written.target, torch._ops.OpOverload) else written.name
    return stem.strip("_")


def kind_of(nodes: Iterable[Node]) -> OpClass:
    """The class of a composite: the strongest class among its primitives (an expanded constant is computed)."""
    ops = [n.op for n in nodes]
    classes = {OPS[op].cls for op in ops if op != "const"}
    for cls in ("gather", "reduce", "pointwise"):
        if cls in classes:
            return cls
    return "pointwise" if "const" in ops else "move"


def _live(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Nodes that reach the output, plus those with an effect (random state)."""
    live: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in live or _has_effect(node):
            live.add(node)
            live.update(node.all_input_nodes)
    return live


def _has_effect(node: torch.fx.Node) -> bool:
    t = node.target
    if node.op != "call_function" or not isinstance(t, torch._ops.OpOverload):
        return False
    if target_name(t) in _SKIPPED:
        return False
    return torch.Tag.nondeterministic_seeded in t.tags or t._schema.is_mutable or not t._schema.returns


def _check_supported(values: Iterable[Any]) -> None:
    for v in values:
        if isinstance(v, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise Unlowered("a number that is known only at run time", "F602")
        if not isinstance(v, torch.Tensor):
            continue
        if v.layout != torch.strided or v.is_quantized:
            raise Unlowered("a tensor that is not strided", "F604")
        if str(v.dtype).removeprefix("torch.") not in KERNEL_DTYPES:
            raise Unlowered(f"{v.dtype} has no kernels", "F604")
        if v.device.type != "cpu":
            raise Unlowered(f"the device {v.device}", "F605")
        if not all(isinstance(n, int) for n in (*v.shape, *v.stride())):
            raise Unlowered("a size that is known only at run time", "F602")


def _check_results(found: list[T], values: list[Value]) -> None:
    """A lowering that disagrees with the framework about a shape or type is not used."""
    if len(found) != len(values):
        raise Unlowered(f"the lowering gives {len(found)} results, the framework {len(values)}")
    for t, v in zip(found, values, strict=True):
        if t.value.shape != v.shape or t.value.dtype != v.dtype:
            raise Unlowered(
                f"the lowering gives {t.value.dtype}{t.value.shape}, the framework {v.dtype}{v.shape}"
            )


__all__ = ["Converted", "UserOp", "convert", "kind_of", "target_name"]
