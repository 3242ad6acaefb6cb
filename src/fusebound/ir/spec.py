"""The rules of the graph IR, one small function each; `verify` runs them in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from fusebound.errors import GraphError
from fusebound.ir.control import MODULE, subgraphs_fit
from fusebound.ir.dtypes import DTYPES
from fusebound.ir.graph import Graph, Node, Token, UserOp, hint, refs
from fusebound.ir.ops import CLASSES, OPS
from fusebound.ir.primitive import attr_faults, dtype_faults, shape_faults
from fusebound.ir.text import print_graph, print_node, print_user_op
from fusebound.words import count

AROUND = 4
"""Lines of IR shown before and after a fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and the operator (or user operator) where it shows; None for the graph as a whole."""

    message: str
    at: Node | UserOp | None = None


ADDRESSABLE = 1 << 47
"""Bytes of a process's address space."""

Rule = Callable[[Graph], Iterator[Fault]]


def verify(g: Graph) -> None:
    """Check every rule; raises GraphError for the first broken one, with the IR around each of its faults.

    Later rules may rely on earlier ones, so rules after the first broken one are not run.
    """
    title, faults = _broken(g)
    if faults:
        raise GraphError(
            f"{faults[0].message} (rule '{title}')\n{_annotated(g, faults)}", where=_where(g, faults[0])
        )


def _broken(g: Graph) -> tuple[str, list[Fault]]:
    """The first broken rule with its faults; no faults where all hold."""
    for title, rule in RULES.items():
        if faults := list(rule(g)):
            return title, faults
    return "", []


def _where(g: Graph, fault: Fault) -> str:
    match fault.at:
        case Node(user=user):
            label = g.user[user].label if user in g.user else user
        case UserOp(label=label):
            pass
        case None:
            return f"graph {g.name!r}"
    return f"{label} in graph {g.name!r}"


def names_are_unique(g: Graph) -> Iterator[Fault]:
    """Every value is defined once and keeps its id; node ids and user operators' names differ."""
    defined = Counter(i.value for i in g.inputs)
    for n in g.nodes:
        for v in n.outputs:
            defined[v] += 1
            if defined[v] > 1:
                yield Fault(f"value %{v} is defined twice", n)
    for v, times in Counter(i.value for i in g.inputs).items():
        if times > 1:
            yield Fault(f"input %{v} is listed twice")
    for v, value in g.values.items():
        if value.id != v:
            yield Fault(f"value %{v} calls itself %{value.id}")
    for id, times in Counter(n.id for n in g.nodes).items():
        if times > 1:
            yield Fault(f"{times} nodes are called {id}", next(n for n in g.nodes if n.id == id))
    for name, times in Counter(u.name for u in g.user_ops).items():
        if times > 1:
            yield Fault(
                f"{times} user operators are called {name}", next(u for u in g.user_ops if u.name == name)
            )


def values_are_defined(g: Graph) -> Iterator[Fault]:
    """Operands are inputs or results of earlier nodes; every value has a definition and a type."""
    seen = set(g.input_ids)
    later = {v for n in g.nodes for v in n.outputs}
    for n in g.nodes:
        for v in n.inputs:
            if v not in seen:
                fate = "only later" if v in later else "nowhere" + _near(v, seen)
                yield Fault(f"%{v} is used here but defined {fate}", n)
        seen.update(n.outputs)
        for v in n.outputs:
            if v not in g.values:
                yield Fault(f"%{v} has no type", n)
    for v in g.input_ids:
        if v not in g.values:
            yield Fault(f"input %{v} has no type")
    for v in g.values:
        if v not in seen:
            yield Fault(f"value %{v} has a type but no definition")


def types_are_sound(g: Graph) -> Iterator[Fault]:
    """Known element types, one stride an axis, no negative size or stride, memory that can be addressed."""
    for v in g.values:
        if message := _unsound(v, g):
            yield Fault(message, g.producer.get(v))


def _unsound(id: str, g: Graph) -> str:
    v = g.values[id]
    if v.dtype not in DTYPES:
        return f"%{id} has the unknown element type {v.dtype!r}"
    if len(v.strides) != len(v.shape):
        return f"%{id} has {count(len(v.shape), 'size')} but {count(len(v.strides), 'stride')}"
    if any(hint(d) < 0 for d in (*v.shape, *v.strides)):
        return f"%{id} has a negative size or stride"
    reach = sum((hint(n) - 1) * hint(s) for n, s in zip(v.shape, v.strides, strict=True)) if v.numel else 0
    if max(reach, v.numel) * v.type.itemsize >= ADDRESSABLE:
        return f"%{id} is larger than memory can be"
    return ""


def nodes_belong(g: Graph) -> Iterator[Fault]:
    """Every node has a user operator; one that the framework runs is the only node of its own."""
    size = Counter(n.user for n in g.nodes)
    for n in g.nodes:
        if n.user not in g.user:
            yield Fault(f"no user operator {n.user!r}{_near(n.user, set(g.user))}", n)
        elif n.op not in OPS and size[n.user] > 1:
            yield Fault(f"{n.op} is no primitive, so it must be the only node of {n.user}", n)


def user_ops_are_sound(g: Graph) -> Iterator[Fault]:
    """Classes are known; outputs and the values in argument lists are defined."""
    for u in g.user_ops:
        if u.kind not in CLASSES:
            yield Fault(f"unknown class {u.kind!r}; known: {', '.join(CLASSES)}", u)
        for v in u.outputs:
            if v not in g.values:
                yield Fault(f"its output %{v} is not defined{_near(v, set(g.values))}", u)
        for v in refs((*u.args, *(a for _, a in u.kwargs))):
            if v not in g.values:
                yield Fault(f"its argument %{v} is not defined{_near(v, set(g.values))}", u)


def arity_fits(g: Graph) -> Iterator[Fault]:
    """A primitive has the operands that its spec asks for, and one result."""
    for n in g.nodes:
        if (spec := OPS.get(n.op)) is None:
            continue
        if spec.arity >= 0 and len(n.inputs) != spec.arity:
            yield Fault(f"{n.op} takes {count(spec.arity, 'operand')}, not {len(n.inputs)}", n)
        elif not n.inputs and spec.arity < 0:
            yield Fault(f"{n.op} needs at least one operand", n)
        if len(n.outputs) != 1:
            yield Fault(f"{n.op} has one result, not {len(n.outputs)}", n)


def _per_primitive(check: Callable[[Graph, Node], Iterator[str]], doc: str) -> Rule:
    def rule(g: Graph) -> Iterator[Fault]:
        for n in g.nodes:
            if n.op in OPS:
                yield from (Fault(message, n) for message in check(g, n))

    rule.__doc__ = doc
    return rule


def results_are_defined(g: Graph) -> Iterator[Fault]:
    """What the graph returns exists."""
    for v in g.outputs:
        if v not in g.values:
            yield Fault(f"the graph returns %{v}, which is not defined{_near(v, set(g.values))}")


def mutations_fit(g: Graph) -> Iterator[Fault]:
    """A mutation gives an input, once, a value of the input's own shape and type."""
    seen: set[str] = set()
    for m in g.mutations:
        if m.target not in g.input_ids:
            yield Fault(f"mutation target %{m.target} is not an input{_near(m.target, set(g.input_ids))}")
        elif m.source not in g.values:
            yield Fault(f"mutation source %{m.source} is not defined{_near(m.source, set(g.values))}")
        elif m.target in seen:
            yield Fault(f"%{m.target} is mutated twice")
        else:
            old, new = g.values[m.target], g.values[m.source]
            if (old.shape, old.dtype) != (new.shape, new.dtype):
                yield Fault(
                    f"%{m.target} is {old.dtype}{list(map(str, old.shape))} but would become "
                    f"{new.dtype}{list(map(str, new.shape))} by %{m.source}",
                    g.producer.get(m.source),
                )
        seen.add(m.target)


def subgraphs_are_sound(g: Graph) -> Iterator[Fault]:
    """Every subgraph keeps these rules itself, mutates nothing, and fits the one operator that runs it."""
    runs: dict[str, list[UserOp]] = {name: [] for name in g.subgraphs}
    for u in g.user_ops:
        for a in u.args:
            if isinstance(a, Token) and a.name.removeprefix(MODULE) in runs:
                runs[a.name.removeprefix(MODULE)].append(u)
    for name, sub in g.subgraphs.items():
        at = runs[name][0] if runs[name] else None
        if len(runs[name]) != 1:
            yield Fault(f"the subgraph {name!r} is run by {len(runs[name])} operators, not by one", at)
        if sub.name != name:
            yield Fault(f"the subgraph {name!r} calls itself {sub.name!r}", at)
        if sub.mutations:
            yield Fault(f"the subgraph {name!r} mutates its inputs", at)
        title, faults = _broken(sub)
        if faults:
            yield Fault(f"in {name!r}: {faults[0].message} (rule '{title}')", at)
            return
    for u in g.user_ops:
        yield from (Fault(message, u) for message in subgraphs_fit(g, u))


RULES: dict[str, Rule] = {
    "names are unique": names_are_unique,
    "values are defined before use": values_are_defined,
    "types are sound": types_are_sound,
    "nodes belong to user operators": nodes_belong,
    "user operators are sound": user_ops_are_sound,
    "arity": arity_fits,
    "attributes": _per_primitive(attr_faults, "Attributes are those of the spec, typed, within range."),
    "element types": _per_primitive(dtype_faults, "Element types are those that the builder infers."),
    "shapes": _per_primitive(shape_faults, "Shapes are those that the builder infers."),
    "results are defined": results_are_defined,
    "mutations fit their inputs": mutations_fit,
    "subgraphs are sound": subgraphs_are_sound,
}
"""Every rule by name, in the order in which `verify` runs them."""


def _near(name: str, known: set[str]) -> str:
    close = get_close_matches(name, sorted(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _annotated(g: Graph, faults: list[Fault]) -> str:
    """The IR around the faults, each message under the operator's line."""
    lines = print_graph(g).splitlines()
    notes: dict[int, list[str]] = {}
    for f in faults:
        notes.setdefault(_line_of(g, lines, f.at), []).append(f.message)
    out: list[str] = []
    last = -1
    for k in sorted(
        {j for row in notes for j in range(row - AROUND, row + AROUND + 1) if 0 <= j < len(lines)}
    ):
        if k > last + 1:
            out.append("   ...")
        out.append(f"{k + 1:5} | {lines[k]}")
        out += [f"      ^ {message}" for message in notes.get(k, ())]
        last = k
    return "\n".join(out)


def _line_of(g: Graph, lines: list[str], at: Node | UserOp | None) -> int:
    if at is None:
        return next(k for k, line in enumerate(lines) if line.split(" ")[0] == "return")
    text = print_node(g, at) if isinstance(at, Node) else print_user_op(at)
    return next(k for k, line in enumerate(lines) if line.startswith(text))
