"""The graph IR: frozen values, primitive nodes, and the user's operators that they came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from fusebound.ir.dtypes import DType, dtype


@dataclass(frozen=True, slots=True)
class Sym:
    """A size that is known only at run time; `hint` is a plausible value for costs."""

    name: str
    hint: int

    def __str__(self) -> str:
        return f"{self.name}~{self.hint}"


Dim = int | Sym


def hint(d: Dim) -> int:
    """The size to use in cost arithmetic."""
    return d.hint if isinstance(d, Sym) else d


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to a value inside the argument list of a user's operator."""

    id: str


@dataclass(frozen=True, slots=True)
class Token:
    """A framework constant in an argument list, by name: `torch.float32`, `cpu`, `torch.strided`.

    `module:cond.true` names a subgraph, for the operators of control flow.
    """

    name: str


Attr = None | bool | int | float | complex | str | Ref | Token | Sym | tuple["Attr", ...]


def refs(a: Attr) -> tuple[str, ...]:
    """Ids of the values that an argument mentions, in order."""
    if isinstance(a, Ref):
        return (a.id,)
    return tuple(r for x in a for r in refs(x)) if isinstance(a, tuple) else ()


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor (or, with `scalar`, a Python number known at run time). Strides count elements."""

    id: str
    shape: tuple[Dim, ...]
    dtype: str
    strides: tuple[Dim, ...]
    device: str = "cpu"
    scalar: bool = False

    @property
    def type(self) -> DType:
        return dtype(self.dtype)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    @property
    def numel(self) -> int:
        return prod(hint(d) for d in self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the distinct elements (an expanded axis counts once)."""
        n = prod(hint(d) for d, s in zip(self.shape, self.strides, strict=True) if s != 0)
        return n * self.type.itemsize if self.numel else 0


@dataclass(frozen=True, slots=True)
class Input:
    """A graph input. `kind`: "user", "param", "buffer" or "const"; `target` names it in the user's code.

    One input may be of kind "seed": an int64 that the runtime draws anew at every call, from which the primitive
    `random` derives its numbers (docs/random.md)."""

    value: str
    kind: str
    target: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where the user wrote an operator."""

    file: str = ""
    line: int = 0
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "<unknown>"


@dataclass(frozen=True, slots=True)
class UserOp:
    """One operator as the user wrote it: the framework call that computes `outputs`, the primitives' parent.

    `name` is unique in the graph (`softmax`, `add_2`); `scope` is the module path (`layers.0.mlp`);
    `target` is the functional framework operator (`aten.softmax.int`), `written` the one in the user's
    program where it differs (`aten.mul_.Tensor`). `kind` is the class (docs/ir.md) of the whole operator;
    `why` says why it is a boundary when it is opaque (a code such as F601).
    """

    name: str
    target: str
    args: tuple[Attr, ...]
    kwargs: tuple[tuple[str, Attr], ...]
    outputs: tuple[str, ...]
    kind: str
    scope: str = ""
    source: Source = field(default_factory=Source)
    written: str = ""
    why: str = ""

    @property
    def label(self) -> str:
        """How messages name it: `softmax (model.py:12)`."""
        file = self.source.file.replace("\\", "/").rpartition("/")[2]
        return f"{self.name} ({file}:{self.source.line})" if file else self.name


@dataclass(frozen=True, slots=True)
class Node:
    """One primitive in SSA form. `op` is a name of `ir.ops` or, for a boundary, the framework operator."""

    id: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    user: str
    attrs: tuple[tuple[str, Attr], ...] = ()

    def attr(self, key: str, default: Attr = None) -> Attr:
        for k, v in self.attrs:
            if k == key:
                return v
        return default

    @property
    def out(self) -> str:
        return self.outputs[0]


@dataclass(frozen=True, slots=True)
class Mutation:
    """After the call, input value `target` holds value `source`."""

    target: str
    source: str


@dataclass(frozen=True)
class Graph:
    """An SSA graph in topological order: `ir.builder.Builder` builds one, `ir.spec.verify` checks one.

    `outputs` are value ids, a value as often as it is returned. `subgraphs` are what operators of control flow run,
    by the name in their arguments (`cond.true`): graphs of their own, whose inputs are the operator's operands.
    """

    name: str
    inputs: tuple[Input, ...]
    values: Mapping[str, Value]
    nodes: tuple[Node, ...]
    user_ops: tuple[UserOp, ...]
    outputs: tuple[str, ...]
    mutations: tuple[Mutation, ...] = ()
    subgraphs: Mapping[str, Graph] = field(default_factory=dict[str, "Graph"])

    @cached_property
    def node(self) -> dict[str, Node]:
        """Nodes by id."""
        return {n.id: n for n in self.nodes}

    @cached_property
    def position(self) -> dict[str, int]:
        """Each node's place in the topological order."""
        return {n.id: i for i, n in enumerate(self.nodes)}

    @cached_property
    def user(self) -> dict[str, UserOp]:
        """User operators by name."""
        return {u.name: u for u in self.user_ops}

    @cached_property
    def producer(self) -> dict[str, Node]:
        """The node that defines each value (graph inputs have none)."""
        return {v: n for n in self.nodes for v in n.outputs}

    @cached_property
    def consumers(self) -> dict[str, tuple[Node, ...]]:
        """The nodes that read each value, in order, each once."""
        table: dict[str, list[Node]] = {v: [] for v in self.values}
        for n in self.nodes:
            for v in dict.fromkeys(n.inputs):
                table[v].append(n)
        return {v: tuple(ns) for v, ns in table.items()}

    @cached_property
    def members(self) -> dict[str, tuple[Node, ...]]:
        """The primitives of each user operator, in order."""
        table: dict[str, list[Node]] = {u.name: [] for u in self.user_ops}
        for n in self.nodes:
            table[n.user].append(n)
        return {u: tuple(ns) for u, ns in table.items()}

    @cached_property
    def escaping(self) -> frozenset[str]:
        """Values that must exist in memory after the call: outputs and mutation sources."""
        return frozenset(self.outputs) | {m.source for m in self.mutations}

    @cached_property
    def input_ids(self) -> tuple[str, ...]:
        return tuple(i.value for i in self.inputs)

    @cached_property
    def seed(self) -> str:
        """The input of kind "seed", or "" where nothing is drawn by counter."""
        return next((i.value for i in self.inputs if i.kind == "seed"), "")

    @cached_property
    def given(self) -> tuple[Input, ...]:
        """The inputs that a caller gives: all but the seed."""
        return tuple(i for i in self.inputs if i.kind != "seed")

    @cached_property
    def key(self) -> str:
        """A content hash that plans carry to recognise their graph; files and lines are no part of it."""
        from fusebound.ir.text import print_graph

        return hashlib.sha256(print_graph(_placeless(self)).encode()).hexdigest()[:16]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)


def _placeless(g: Graph) -> Graph:
    """The graph without files and lines."""
    ops = tuple(replace(u, source=Source()) for u in g.user_ops)
    return replace(g, user_ops=ops, subgraphs={k: _placeless(s) for k, s in g.subgraphs.items()})
