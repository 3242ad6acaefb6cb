"""Finds a user operator by what the user calls it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from fusebound.errors import UsageError
from fusebound.ir.control import everywhere
from fusebound.ir.graph import Graph, UserOp

SHOWN = 12
"""Candidates listed in a message."""


def locate(g: Graph, name: str) -> tuple[tuple[str, ...], UserOp]:
    """Like `find`, in subgraphs too: the operator, and the names of the subgraphs around it, outermost first.

    `cond.true/mul` names the operator of one branch; `mul` alone is enough where nothing else is called so.
    """
    around = [(path, s) for path, s in everywhere(g) if path and name.startswith(path[-1] + "/")]
    if around:
        path, s = max(around, key=lambda x: len(x[0]))
        return path, find(s, name.removeprefix(path[-1] + "/"))
    inside = [(path, u) for path, s in everywhere(g) if path for u in _fits(s, name)]
    if _fits(g, name) or not inside:
        return (), find(g, name)
    if len(inside) == 1:
        return inside[0]
    shown = _list(f"{path[-1]}/{u.name}" for path, u in inside)
    raise UsageError(
        f"{name!r} names {len(inside)} operators: {shown}", where=f"graph {g.name!r}", hint="name one of them"
    )


def find(g: Graph, name: str) -> UserOp:
    """The operator called `name`: its own name, a primitive or value of it, a module path, or a kind.

    `layers.0.mlp.act` finds the one operator of that module (or below it), `layers.0.mlp.act/gelu` one of
    several; `gelu` the only `gelu_3` or `aten.gelu.default`. Raises UsageError with close names where nothing
    fits, with the candidates where several do.
    """
    fits = _fits(g, name)
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise UsageError(
            f"{name!r} names {len(fits)} operators: {_list(_shown(u) for u in fits)}",
            where=f"graph {g.name!r}",
            hint="name one of them",
        )
    inside = _inside(g, name.partition("/")[0])
    what, hint = f"no operator {name!r} in this graph", _close(g, name, inside)
    raise UsageError(what, where=f"graph {g.name!r}", hint=hint, code="E101")


def _fits(g: Graph, name: str) -> list[UserOp]:
    """The operators that a name may mean."""
    if (found := g.user.get(name)) is not None:
        return [found]
    if (node := g.node.get(name) or g.producer.get(name)) is not None:
        return [g.user[node.user]]
    scope, _, stem = name.partition("/")
    fits = [u for u in _inside(g, scope) if not stem or stem in _kinds(u)]
    return fits or [u for u in g.user_ops if name in _kinds(u)]


def _inside(g: Graph, scope: str) -> list[UserOp]:
    return [u for u in g.user_ops if u.scope and _within(u.scope, scope)]


def _within(scope: str, path: str) -> bool:
    return scope == path or scope.startswith(path + ".")


def _kinds(u: UserOp) -> set[str]:
    """`add_2`, `add` (without the count) and `add` (of `aten.add.Tensor`)."""
    head, _, tail = u.name.rpartition("_")
    return {u.name, head if head and tail.isdigit() else u.name, *u.target.split(".")[1:2]}


def _shown(u: UserOp) -> str:
    return f"{u.label} in {u.scope}" if u.scope else u.label


def _list(names: Iterable[str]) -> str:
    shown = list(names)
    more = f", and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return ", ".join(shown[:SHOWN]) + more


def _close(g: Graph, name: str, inside: list[UserOp]) -> str:
    if inside:
        return f"operators there: {_list(u.name for u in inside)}"
    known = list(dict.fromkeys([*(u.name for u in g.user_ops), *(u.scope for u in g.user_ops if u.scope)]))
    near = get_close_matches(name, known, n=4, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"operators: {_list(u.name for u in g.user_ops)}" if g.user_ops else "the graph has no operators"
