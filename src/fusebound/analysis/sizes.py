"""Sizes and numbers that only the run knows: which operators depend on them, and which operator decides them."""

from __future__ import annotations

from collections.abc import Collection

from fusebound.ir.graph import Graph, Sym, UserOp


def symbols(g: Graph, values: Collection[str]) -> tuple[str, ...]:
    """The symbols among the sizes of some values, each once. Equal symbols are equal sizes."""
    found = (d.name for v in values for d in g.values[v].shape if isinstance(d, Sym))
    return tuple(dict.fromkeys(found))


def operands(g: Graph, user: UserOp) -> tuple[str, ...]:
    """The values that an operator reads."""
    return tuple(dict.fromkeys(v for n in g.members[user.name] for v in n.inputs))


def decides(g: Graph, symbol: str) -> UserOp | None:
    """The first operator whose result has a size."""
    return next((u for u in g.user_ops if symbol in symbols(g, u.outputs)), None)


def takes_number(g: Graph, user: UserOp) -> bool:
    """Whether an operator makes a Python number at run time, or takes one."""
    return any(g.values[v].scalar for v in (*user.outputs, *operands(g, user)))


def at_run_time(g: Graph, user: UserOp) -> str:
    """What it is that only the run knows about an operator, as the end of a sentence about it."""
    for symbol in symbols(g, operands(g, user)):
        maker = decides(g, symbol)
        if maker is not None and maker is not user:
            return f"works on {symbol} elements, as many as {maker.label} finds at run time"
    for v in operands(g, user):
        if g.values[v].scalar and v in g.producer:
            return f"takes a number that {g.user[g.producer[v].user].label} gives at run time"
    if user.outputs and all(g.values[v].scalar for v in user.outputs):
        return "reads a number out of a tensor"
    return "has a data-dependent size"
