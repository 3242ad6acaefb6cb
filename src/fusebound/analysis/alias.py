"""Storages: which values are views of which, and which inputs a call writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fusebound.analysis.access import factor, integer, ints
from fusebound.analysis.memo import per_graph
from fusebound.ir.graph import Graph, Node, UserOp, hint
from fusebound.ir.ops import spec_of

_COPIES = ("clone", "contiguous", "copy", "_to_copy", "lift_fresh_copy", "constant_pad_nd", "roll", "repeat")


_VIEWS = ("reshape", "permute", "expand", "slice")


def is_move(g: Graph, user: UserOp) -> bool:
    """Whether a user operator only moves elements (as a view or as a copy)."""
    specs = [spec_of(n.op) for n in g.members[user.name]]
    return bool(specs) and all(s is not None and s.cls == "move" for s in specs)


@per_graph
def _view(g: Graph, name: str) -> bool:
    user = g.user[name]
    if any(f".{c}." in f".{user.target}." for c in _COPIES):
        return False
    return is_move(g, user) and _views_through(g, g.members[name])


def _views_through(g: Graph, nodes: Sequence[Node]) -> bool:
    """Whether a chain of moves ends with the strides that views of views would have; those between are nobody's."""
    strides: dict[str, tuple[int, ...]] = {}
    for n in nodes:
        found = view_strides(g, n, strides.get(n.inputs[0])) if n.op in _VIEWS else None
        if found is None:
            return False
        strides[n.out] = found
    last = nodes[-1].out
    return _walked(g, last, strides[last]) == _walked(g, last, [hint(s) for s in g.values[last].strides])


def _walked(g: Graph, value: str, strides: Sequence[int]) -> list[int]:
    """The strides of axes that have more than one element."""
    return [s for n, s in zip(map(hint, g.values[value].shape), strides, strict=True) if n > 1]


def is_view(g: Graph, user: UserOp) -> bool:
    """Whether the framework runs this operator without moving a byte: its results share their operand's storage."""
    return _view(g, user.name)


def is_free(g: Graph, user: UserOp) -> bool:
    """Whether the framework runs this operator without touching memory: a view, or a question about a shape."""
    return is_view(g, user) or user.target.startswith("aten.sym_")


@per_graph
def _write_back(g: Graph, name: str) -> bool:
    nodes = g.members[name]
    return is_move(g, g.user[name]) and any(n.op == "slice_scatter" for n in nodes)


def is_write_back(g: Graph, user: UserOp) -> bool:
    """Whether it is the second half of an in-place operator on a view: eager has written through the view, a graph has
    a whole new tensor."""
    return bool(user.written) and _write_back(g, user.name)


def view_strides(g: Graph, node: Node, given: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
    """The strides (in elements) that a view of the operand would have, or None where no view exists.

    `given` are the operand's strides where they are not those of the graph.
    """
    v, to = g.values[node.inputs[0]], g.values[node.out]
    strides = given or tuple(hint(s) for s in v.strides)
    shape = [hint(d) for d in v.shape]
    match node.op:
        case "permute":
            return tuple(strides[p] for p in ints(node.attr("perm")))
        case "slice":
            dim = integer(node.attr("dim"))
            return (*strides[:dim], strides[dim] * integer(node.attr("step")), *strides[dim + 1 :])
        case "expand":
            lead = len(to.shape) - len(shape)
            kept = [
                0 if n == 1 and hint(m) != 1 else s
                for n, m, s in zip(shape, to.shape[lead:], strides, strict=True)
            ]
            return (*([0] * lead), *kept)
        case _:
            return _reshape_strides(shape, strides, [hint(d) for d in to.shape])


def _reshape_strides(
    shape: Sequence[int], strides: Sequence[int], to: Sequence[int]
) -> tuple[int, ...] | None:
    out: list[int] = []
    for source, result in factor(shape, to):
        real = [i for i in source if shape[i] > 1]
        if any(strides[a] != strides[b] * shape[b] for a, b in pairwise(real)):
            return None
        step = strides[real[-1]] if real else 1
        run: list[int] = []
        for j in reversed(result):
            run.append(step)
            step *= max(to[j], 1)
        out += reversed(run)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Apart:
    """A precondition of running a graph's kernels: the input `written` shares no memory with `others`.

    No two indices of `written` may reach one element either.
    """

    written: str
    others: tuple[str, ...]


@per_graph
def preconditions(g: Graph) -> tuple[Apart, ...]:
    """What must hold of the inputs' memory at every call, for each input that is written; the order of reads and
    writes that the user's program has is kept for disjoint memory only."""
    written = {m.target for m in g.mutations}
    inputs = [i.value for i in g.inputs if i.kind != "seed" and not g.values[i.value].scalar]
    touched = [v for v in inputs if g.consumers[v] or v in written]
    return tuple(Apart(v, tuple(o for o in touched if o != v)) for v in touched if v in written)


@dataclass(frozen=True, slots=True)
class Storages:
    """`base` maps every value to the value that owns its memory (itself when it is no view)."""

    base: dict[str, str]
    written: frozenset[str]

    def shared(self, a: str, b: str) -> bool:
        """Whether two values lie in one storage."""
        return self.base[a] == self.base[b]


@per_graph
def storages(g: Graph) -> Storages:
    """Follow the framework's views through a graph; `written` holds the inputs that the call mutates."""
    base = {v: v for v in g.input_ids}
    views = {u.name: is_view(g, u) for u in g.user_ops}
    for n in g.nodes:
        for v in n.outputs:
            base[v] = base[n.inputs[0]] if views[n.user] and n.inputs else v
    return Storages(base, frozenset(m.target for m in g.mutations))
