"""Which operators draw random numbers from the framework, in what order, and which by counter."""

from __future__ import annotations

from fusebound.analysis.memo import per_graph
from fusebound.ir.graph import Graph, UserOp
from fusebound.ir.ops import OPS


def counted(g: Graph, user: UserOp) -> bool:
    """Whether an operator's numbers are a function of the call's seed (`numerics="accurate"`)."""
    return any(n.op in OPS and OPS[n.op].cls == "random" for n in g.members[user.name])


@per_graph
def generator_order(g: Graph, numerics: str) -> tuple[str, ...]:
    """The operators, by name, that move the framework's generator when they run: they must run in this order.

    `numerics="eager"` leaves every draw to the framework.
    """
    return tuple(
        u.name
        for u in g.user_ops
        if any(n.attr("draws") is True for n in g.members[u.name]) or (numerics == "eager" and counted(g, u))
    )
