"""Operators of control flow whose subgraphs are known: `cond` and `while_loop`, read from their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fusebound.ir.graph import Attr, Graph, Ref, Token, UserOp

MODULE = "module:"
"""How a token names a subgraph."""


@dataclass(frozen=True, slots=True)
class Control:
    """One operator of control flow.

    A `cond` runs `first` where the 0-d bool `predicate` holds, else `second`, on `operands`. A `while_loop` runs
    `second` as long as `first` holds, both on `operands`, of which the first `carried` become the body's results.
    """

    kind: Literal["cond", "while_loop"]
    first: str
    second: str
    operands: tuple[str, ...]
    predicate: str = ""
    carried: int = 0

    @property
    def subgraphs(self) -> tuple[str, str]:
        return self.first, self.second


def control(g: Graph, u: UserOp) -> Control | None:
    """What an operator of control flow does; None for any other, and for one whose subgraphs the graph lacks."""
    match u.target.partition("[")[0], u.args:
        case "higher_order.cond", (Ref(predicate), Token(yes), Token(no), tuple(operands)):
            found = _control("cond", yes, no, operands, predicate=predicate)
        case "higher_order.while_loop", (Token(test), Token(body), tuple(carried), tuple(extra)):
            found = _control("while_loop", test, body, (*carried, *extra), carried=len(carried))
        case _:
            return None
    return found if found is not None and set(found.subgraphs) <= g.subgraphs.keys() else None


def _control(
    kind: Literal["cond", "while_loop"], first: str, second: str, operands: tuple[Attr, ...], *,
    predicate: str = "", carried: int = 0,
) -> Control | None:  # fmt: skip
    """None where an operand is a plain number: such a subgraph has no value to read."""
    ids = tuple(a.id for a in operands if isinstance(a, Ref))
    if len(ids) < len(operands):
        return None
    return Control(
        kind, first.removeprefix(MODULE), second.removeprefix(MODULE), ids, predicate, carried
    )  # fmt: skip


def subgraphs_fit(g: Graph, u: UserOp) -> Iterator[str]:
    """What does not fit between an operator of control flow and its subgraphs: inputs, results, types."""
    c = control(g, u)
    if c is None:
        return
    given = _types(g, c.operands)
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


def _types(g: Graph, ids: tuple[str, ...]) -> list[tuple[str, tuple[object, ...]]]:
    return [(g.values[i].dtype, g.values[i].shape) for i in ids]


def _show(types: list[tuple[str, tuple[object, ...]]]) -> str:
    return ", ".join(f"{dtype}[{', '.join(map(str, shape))}]" for dtype, shape in types) or "nothing"
