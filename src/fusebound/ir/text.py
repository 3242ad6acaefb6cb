"""Graphs as text: `parse_graph(print_graph(g)) == g`, exactly. The grammar is in docs/ir.md.

fusebound.graph 1 "name"
%x = input user "x" : f32[8192, 2048]
relu: aten.relu.default(%x) -> %relu pointwise at "model.py":12 `y = x.relu()`
  %relu.1 = const() {value = 0.0} : f32[]
  %relu = clamp_min(%x, %relu.1) : f32[8192, 2048]
return %relu
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from fusebound.ir import lex
from fusebound.ir.builder import contiguous
from fusebound.ir.dtypes import DTYPES
from fusebound.ir.graph import Attr, Dim, Graph, Input, Node, Ref, Source, Sym, Token, UserOp, Value
from fusebound.ir.reader import default_id, parse_graph

__all__ = ["parse_graph", "print_graph", "print_node", "print_type", "print_user_op"]


def print_graph(g: Graph) -> str:
    """The text of a graph, one statement a line, ending in a newline. Total: broken graphs print too."""
    return "\n".join((f"fusebound.graph 1 {lex.quote(g.name)}", *_statements(g))) + "\n"


def _statements(g: Graph) -> Iterator[str]:
    return chain(_header(g), _subgraphs(g), _body(g), _footer(g))


def _header(g: Graph) -> Iterator[str]:
    for i in g.inputs:
        yield print_input(g, i)
    defined = {i.value for i in g.inputs} | {v for n in g.nodes for v in n.outputs}
    for v in g.values:
        if v not in defined:
            yield f"value {_ref(v)} : {_typed(g, v)}"


def _subgraphs(g: Graph) -> Iterator[str]:
    """What control flow runs: the statements of each subgraph between `graph "name"` and `end`."""
    for name, sub in g.subgraphs.items():
        yield f"graph {lex.quote(name)}"
        yield from ("  " + line for line in _statements(sub))
        yield "end"


def _body(g: Graph) -> Iterator[str]:
    """User operators in their order, each followed by its nodes; nodes keep their own order.

    A node that does not follow its operator's header says where it belongs with `in NAME`.
    """
    pending = list(reversed(g.user_ops))
    printed: set[str] = set()
    known = {u.name for u in g.user_ops}
    current = ""
    for n in g.nodes:
        while n.user in known and n.user not in printed:
            u = pending.pop()
            current = u.name
            printed.add(current)
            yield print_user_op(u)
        yield print_node(g, n) + ("" if n.user == current else f" in {lex.name(n.user)}")
    yield from map(print_user_op, reversed(pending))


def _footer(g: Graph) -> Iterator[str]:
    yield f"return {_refs(g.outputs)}".rstrip()
    for m in g.mutations:
        yield f"mutate {_ref(m.target)} <- {_ref(m.source)}"


def print_input(g: Graph, i: Input) -> str:
    """One input: its kind, its name in the user's code, its type."""
    return f"{_ref(i.value)} = input {lex.name(i.kind)} {lex.quote(i.target)} : {_typed(g, i.value)}"


def print_user_op(u: UserOp) -> str:
    """The header line of a user operator, with its source line and module path."""
    args = ", ".join([*map(_attr, u.args), *(f"{lex.name(k)}={_attr(v)}" for k, v in u.kwargs)])
    parts = [
        f"{lex.name(u.name)}: {lex.name(u.target)}({args}) -> {_refs(u.outputs) or '()'} {lex.name(u.kind)}"
    ]
    if u.source != Source():
        parts.append(f"at {lex.quote(u.source.file)}:{u.source.line}")
    if u.source.code:
        parts.append(lex.quote(u.source.code, "`"))
    for key, text in (("scope", u.scope), ("written", u.written), ("why", u.why)):
        if text:
            parts.append(f"{key} {lex.quote(text)}")
    return " ".join(parts)


def print_node(g: Graph, n: Node) -> str:
    """One primitive: results, operator, operands, attributes, types (indented by two)."""
    text = f"  {_refs(n.outputs) or '()'} = {lex.name(n.op)}({_refs(n.inputs)})"
    if n.attrs:
        text += " {" + ", ".join(f"{lex.name(k)} = {_attr(v)}" for k, v in n.attrs) + "}"
    if n.outputs:
        text += " : " + ", ".join(_typed(g, v) for v in n.outputs)
    return text if n.id == default_id(n.outputs) else f"{text} as {lex.name(n.id)}"


def print_type(v: Value) -> str:
    """`f32[8192, 2048]`; strides, device and `scalar` only where they are not the ordinary ones."""
    short = DTYPES[v.dtype].short if v.dtype in DTYPES else lex.quote(v.dtype)
    text = f"{short}{_dims(v.shape)}"
    if v.strides != contiguous(v.shape):
        text += f" strides {_dims(v.strides)}"
    if v.device != "cpu":
        text += f" on {lex.quote(v.device)}"
    return text + (" scalar" if v.scalar else "")


def _typed(g: Graph, v: str) -> str:
    return print_type(g.values[v]) if v in g.values else "?"


def _dims(dims: Sequence[Dim]) -> str:
    return f"[{', '.join(_sym(d) if isinstance(d, Sym) else str(d) for d in dims)}]"


def _sym(s: Sym) -> str:
    return f"{lex.name(s.name)}~{s.hint}"


def _ref(v: str) -> str:
    return lex.prefixed("%", v)


def _refs(vs: Sequence[str]) -> str:
    return ", ".join(map(_ref, vs))


def _attr(a: Attr) -> str:
    match a:
        case None | bool() | int() | float():
            return repr(a)
        case complex():
            return f"complex({a.real!r}, {a.imag!r})"
        case str():
            return lex.quote(a)
        case Ref(id):
            return _ref(id)
        case Token(name):
            return lex.prefixed("@", name)
        case Sym():
            return _sym(a)
        case tuple():
            return f"[{', '.join(map(_attr, a))}]"
