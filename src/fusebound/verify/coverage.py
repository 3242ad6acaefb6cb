"""Which branches and loop bodies a built program has run: one that no values reach has not been verified."""

from __future__ import annotations

from fusebound.ir.control import control


def start(exe: object) -> None:
    """Forget what has run so far."""
    entered = getattr(exe, "entered", None)
    if isinstance(entered, set):
        entered.clear()


def missed(exe: object) -> tuple[str, ...]:
    """The subgraphs of a built program that have not run since `start`, with the line of what runs them."""
    entered, plan = getattr(exe, "entered", None), getattr(exe, "plan", None)
    if entered is None or plan is None:
        return ()
    return tuple(
        f"{name} of {u.label}"
        for _, p in plan.everywhere()
        for u in p.graph.user_ops
        if (c := control(p.graph, u)) is not None
        for name in c.subgraphs
        if name not in entered
    )
