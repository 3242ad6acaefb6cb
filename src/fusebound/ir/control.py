"""Operators of control flow whose subgraphs are known: `cond` and `while_loop`, read from their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fusebound.ir.graph import Attr, Dim, Graph, Ref, Sym, Token, UserOp

MODULE = "module:"
"""How a token names a subgraph."""


@dataclass(frozen=True, slots=True)
class Control:
    """One operator of control flow.

    A `cond` runs `first` where `predicate` holds, else `second`, on `operands`. A `while_loop` runs `second` as long as
    `first` holds, both on `operands`, of which the first `carried` become the body's results. Operands are references
    to values, or Python numbers.
    """

    kind: Literal["cond", "while_loop"]
    first: str
    second: str
    operands: tuple[Attr, ...]
    predicate: str = ""
    carried: int = 0

    @property
    def subgraphs(self) -> tuple[str, str]:
        return self.first, self.second

    def weigh(self, first: float, second: float) -> float:
        """A figure of the operator from those of its subgraphs: the dearer branch, or one round of the loop, whose
        number of rounds is known only at run time."""
        return max(first, second) if self.kind == "cond" else first + second


def control(g: Graph, u: UserOp) -> Control | None:
    """What an operator of control flow does; None for any other, and for one whose subgraphs the graph lacks."""
    match u.target.partition("[")[0], u.args:
        case "higher_order.cond", (Ref(predicate), Token(yes), Token(no), tuple(operands)):
            found = Control("cond", _name(yes), _name(no), operands, predicate=predicate)
        case "higher_order.while_loop", (Token(test), Token(body), tuple(carried), tuple(extra)):
            given = (*carried, *extra)
            found = Control("while_loop", _name(test), _name(body), given, carried=len(carried))
        case _:
            return None
    return found if set(found.subgraphs) <= g.subgraphs.keys() else None


def _name(token: str) -> str:
    return token.removeprefix(MODULE)


def everywhere(g: Graph) -> Iterator[tuple[tuple[str, ...], Graph]]:
    """The graph and all subgraphs below it, each with the names of the subgraphs around it, outermost first."""
    yield (), g
    for name, s in g.subgraphs.items():
        yield from (((name, *path), inner) for path, inner in everywhere(s))


def subgraphs_fit(g: Graph, u: UserOp) -> Iterator[str]:
    """What does not fit between an operator of control flow and its subgraphs: inputs, results, types."""
    c = control(g, u)
    if c is None:
        return
    given = [_type(g, a) for a in c.operands]
    for name in c.subgraphs:
        taken = _types(g.subgraphs[name], g.subgraphs[name].input_ids)
        if taken != given:
            yield f"{name} takes {_show(taken)}, but is given {_show(given)}"
    wanted = _types(g, u.outputs)
    for name in c.subgraphs if c.kind == "cond" else (c.second,):
        returned = _types(g.subgraphs[name], g.subgraphs[name].outputs)
        if returned != wanted:
            yield f"{name} returns {_show(returned)}, not {_show(wanted)}"
    if c.kind == "while_loop" and _types(g.subgraphs[c.first], g.subgraphs[c.first].outputs) != [
        ("bool", ())
    ]:
        yield f"{c.first} must return one bool"


Type = tuple[str, tuple[Dim, ...]]


def _types(g: Graph, ids: tuple[str, ...]) -> list[Type]:
    return [_type(g, Ref(i)) for i in ids]


def _type(g: Graph, a: Attr) -> Type:
    """Element type and shape of an operand; of a Python number, those of the value that it becomes."""
    match a:
        case Ref(id):
            return g.values[id].dtype, g.values[id].shape
        case bool():
            return "bool", ()
        case int() | Sym():
            return "int64", ()
        case float():
            return "float64", ()
        case _:
            return type(a).__name__, ()


def _show(types: list[Type]) -> str:
    return ", ".join(f"{dtype}[{', '.join(map(str, shape))}]" for dtype, shape in types) or "nothing"
