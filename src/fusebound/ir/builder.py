"""Builds graphs: one user operator at a time, primitives inside it, shapes and dtypes inferred."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fusebound.errors import unknown
from fusebound.ir.dtypes import dtype
from fusebound.ir.graph import (
    Attr,
    Dim,
    Graph,
    Input,
    Mutation,
    Node,
    Source,
    UserOp,
    Value,
)  # fmt: skip
from fusebound.ir.ops import OPS, OpSpec


def contiguous(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Row-major strides, in elements; a symbolic size makes the outer strides its hint's."""
    out: list[Dim] = []
    step = 1
    for d in reversed(shape):
        out.append(step)
        step *= max(d if isinstance(d, int) else d.hint, 1)
    return tuple(reversed(out))


def broadcast(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The common shape under numpy's rules; raises ValueError where there is none."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = []
    for axis in range(rank):
        size: Dim = 1
        for s in shapes:
            k = axis - rank + len(s)
            if k < 0 or s[k] == 1:
                continue
            if size not in (1, s[k]):
                raise ValueError(f"shapes do not broadcast: {', '.join(map(str, shapes))}")
            size = s[k]
        out.append(size)
    return tuple(out)


class Builder:
    """Collects values, nodes and user operators; `finish` returns the frozen graph.

    `draws_by_counter` is False where random numbers must come from the framework.
    Primitives are added by `emit` between `begin` and `end` of a user operator. Every primitive's operands
    must already have the element type that the computation uses: `emit("cast", ...)` converts.
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.user_ops: list[UserOp] = []
        self.inputs: list[Input] = []
        self.subgraphs: dict[str, Graph] = {}
        self.draws_by_counter = True
        self._user: str = ""
        self._names: set[str] = set()

    def unique(self, stem: str) -> str:
        """A name that no user operator has yet: `add`, `add_1`, `add_2`."""
        name, k = stem, 0
        while name in self._names:
            k += 1
            name = f"{stem}_{k}"
        self._names.add(name)
        return name

    def input(
        self, id: str, shape: Sequence[Dim], dtype: str, strides: Sequence[Dim] | None = None,
        kind: str = "user", target: str = "", device: str = "cpu", scalar: bool = False,
    ) -> str:  # fmt: skip
        st = tuple(strides) if strides is not None else contiguous(shape)
        self.values[id] = Value(id, tuple(shape), dtype, st, device, scalar)
        self.inputs.append(Input(id, kind, target or id))
        return id

    def begin(self, name: str) -> str:
        """Open a user operator; its primitives are called `name`, `name.1`, …"""
        self._user = self.unique(name)
        return self._user

    def abandon(self) -> None:
        """Close the open user operator without a trace; it must not have emitted anything."""
        self._names.discard(self._user)
        self._user = ""

    def end(
        self, target: str, args: Sequence[Attr], kwargs: Sequence[tuple[str, Attr]], outputs: Sequence[str],
        kind: str, scope: str = "", source: Source | None = None, written: str = "", why: str = "",
    ) -> UserOp:  # fmt: skip
        """Close the user operator that `begin` opened; `outputs` are values that it defines."""
        op = UserOp(
            self._user, target, tuple(args), tuple(kwargs), tuple(outputs), kind,
            scope, source or Source(), written, why,
        )  # fmt: skip
        self.user_ops.append(op)
        self._user = ""
        return op

    def restride(self, id: str, strides: Sequence[Dim], *, scalar: bool = False) -> None:
        """Give a value the strides that the framework would give it, and say whether it is a number there."""
        v = self.values[id]
        self.values[id] = Value(v.id, v.shape, v.dtype, tuple(strides), v.device, scalar)

    def opaque(
        self, op: str, inputs: Sequence[str], results: Sequence[Value], **attrs: Attr
    ) -> tuple[str, ...]:
        """Add a node that the framework runs; `results` carry shape, dtype, strides (ids are replaced)."""
        node = self._node_id()
        ids = tuple(f"{node}#{i}" if len(results) > 1 else node for i in range(len(results)))
        for i, r in zip(ids, results, strict=True):
            self.values[i] = Value(i, r.shape, r.dtype, r.strides, r.device, r.scalar)
        self.nodes.append(Node(node, op, tuple(inputs), ids, self._user, _sorted(attrs)))
        return ids

    def emit(
        self, op: str, *inputs: str, shape: Sequence[Dim] | None = None, dtype: str = "", **attrs: Attr
    ) -> str:
        """Add a primitive and return its value's id.

        `shape` is needed by reshape, expand, pad, slice, const, iota and random; `dtype` by cast, const, iota and by
        sums whose result is wider than their operand. Raises UsageError (E101) for an unknown primitive,
        ValueError for operands that do not fit it.
        """
        spec = OPS.get(op)
        if spec is None:
            raise unknown("primitive", op, OPS)
        shapes = [self.values[i].shape for i in inputs]
        out_shape = infer_shape(spec, shapes, shape, attrs)
        out_dtype = dtype or infer_dtype(spec, [self.values[i].dtype for i in inputs])
        node = self._node_id()
        self.values[node] = Value(node, out_shape, out_dtype, contiguous(out_shape))
        self.nodes.append(Node(node, op, tuple(inputs), (node,), self._user, _sorted(attrs)))
        return node

    def const(self, value: float | int | bool, dtype: str) -> str:
        """A 0-d constant."""
        return self.emit("const", shape=(), dtype=dtype, value=value)

    def random(self, shape: Sequence[Dim], count: int) -> tuple[str, ...]:
        """The first `count` (at most 4) words of the random block of the open user operator, which is one draw: the
        graph's draws are numbered in order, and share its input of kind "seed"."""
        seed = next((i.value for i in self.inputs if i.kind == "seed"), "")
        if not seed:
            name, k = "seed", 0
            while name in self.values:
                name, k = f"seed_{k}", k + 1
            seed = self.input(name, (), "int64", kind="seed", target="torch.default_generator")
        draw = len({n.user for n in self.nodes if n.op == "random"} - {self._user})
        return tuple(self.emit("random", seed, shape=shape, draw=draw, word=w) for w in range(count))

    def finish(self, outputs: Sequence[str], mutations: Sequence[Mutation] = ()) -> Graph:
        return Graph(
            self.name, tuple(self.inputs), dict(self.values), tuple(self.nodes),
            tuple(self.user_ops), tuple(outputs), tuple(mutations), dict(self.subgraphs),
        )  # fmt: skip

    def _node_id(self) -> str:
        if not self._user:
            raise ValueError("a primitive needs an open user operator")
        node, k = self._user, 0
        while node in self.values or f"{node}#0" in self.values:
            k += 1
            node = f"{self._user}.{k}"
        return node


def _sorted(attrs: dict[str, Attr]) -> tuple[tuple[str, Attr], ...]:
    return tuple(sorted(attrs.items()))


def _ints(a: Attr) -> tuple[int, ...]:
    assert isinstance(a, tuple)
    return tuple(x for x in a if isinstance(x, int))


def infer_shape(
    spec: OpSpec, shapes: list[tuple[Dim, ...]], given: Sequence[Dim] | None, attrs: dict[str, Attr]
) -> tuple[Dim, ...]:
    """The result's shape (`given`, where it is a parameter). ValueError for operands that do not fit."""
    match spec.name:
        case "permute":
            return tuple(shapes[0][p] for p in _ints(attrs["perm"]))
        case "cat":
            dim = attrs["dim"]
            assert isinstance(dim, int)
            out = list(shapes[0])
            out[dim] = sum(s[dim] for s in shapes if isinstance(s[dim], int))  # type: ignore[misc]
            return tuple(out)
        case "flip" | "slice_scatter":
            return shapes[0]
        case "index_select":
            dim = attrs["dim"]
            assert isinstance(dim, int)
            return (*shapes[0][:dim], *shapes[1], *shapes[0][dim + 1 :])
        case "gather":
            return shapes[1]
        case "reshape" | "expand" | "pad" | "slice" | "const" | "iota" | "random":
            if given is None:
                raise ValueError(f"{spec.name} needs a shape")
            if spec.name == "reshape" and prod(map(_hint, given)) != prod(map(_hint, shapes[0])):
                raise ValueError(f"reshape of {shapes[0]} to {tuple(given)}")
            return tuple(given)
        case _ if spec.cls == "reduce":
            axes = _ints(attrs["axes"])
            return tuple(d for i, d in enumerate(shapes[0]) if i not in axes)
        case _:
            return broadcast(*shapes)


def _hint(d: Dim) -> int:
    return d if isinstance(d, int) else d.hint


def infer_dtype(spec: OpSpec, dtypes: list[str]) -> str:
    """The result's element type, where the operands decide it. ValueError for mixed types."""
    match spec.result:
        case "":
            return _same(spec, dtypes)
        case "first":
            return dtypes[0]
        case "rest":
            return _same(spec, dtypes[1:])
        case "given":
            raise ValueError(f"{spec.name} needs a dtype")
        case name:
            return name


def _same(spec: OpSpec, dtypes: list[str]) -> str:
    if len(set(dtypes)) != 1:
        raise ValueError(f"{spec.name} of mixed types {', '.join(dtypes)}: cast first")
    return dtype(dtypes[0]).name
