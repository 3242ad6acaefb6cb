"""From a plan to the static part of a report: launches, exact bytes by level, shares, remainders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath

from fusebound.analysis.alias import is_view
from fusebound.analysis.traffic import by_level, kernel_traffic, user_traffic
from fusebound.gates.pages import title
from fusebound.ir.control import control
from fusebound.ir.graph import Graph, UserOp
from fusebound.plan.cost import user_op_us
from fusebound.plan.plan import Cut, Group, Plan
from fusebound.report.schema import GroupRow, LevelBytes, Remainder, Report, Shares
from fusebound.target.target import Target

LEVELS = ("register", "l2", "l3", "dram")
UNPLACED = "F000"

Work = tuple[Graph, UserOp]
"""An operator and the graph that it is in."""


def report_of(plan: Plan, target: Target, *, model: str) -> Report:
    """What is known of a plan before it is built. `target` is the record that the plan was made for.

    Operators, launches and bytes count both branches of control flow and one round of a loop; the predicted times of
    the whole count the dearer branch.
    """
    rows = tuple(_rows(plan, target))
    return Report(
        model=model,
        graph_key=plan.graph_key,
        policy=plan.policy,
        numerics=plan.numerics,
        target=target.name,
        calibrated=target.calibrated,
        operators=sum(len(_working(p.graph, p.graph.user)) for _, p in plan.everywhere()),
        views=sum(is_view(p.graph, u) for _, p in plan.everywhere() for u in p.graph.user_ops),
        launches_before=sum(r.launches_before for r in rows),
        launches_after=sum(r.launches_after for r in rows),
        levels=_sum_levels(r.levels for r in rows),
        predicted_us=plan.predicted_us,
        predicted_eager_us=plan.eager_us,
        lower_bound_us=plan.lower_bound_us,
        peak_bytes=plan.peak_bytes,
        groups=rows,
        shares=_shares(plan, target),
        remainders=_remainders(plan, target),
    )


def _rows(plan: Plan, target: Target) -> Iterator[GroupRow]:
    """The groups in order, those of subgraphs after the operator that runs them."""
    for group in plan.groups:
        yield _row(plan.graph, group, target)
        c = control(plan.graph, plan.graph.user[group.users[0]])
        for name in c.subgraphs if c is not None else ():
            yield from _rows(plan.nested[name], target)


def _working(graph: Graph, names: Iterable[str]) -> list[UserOp]:
    """The operators that do work: a view moves nothing and is not counted."""
    return [graph.user[n] for n in names if not is_view(graph, graph.user[n])]


def fused(graph: Graph, group: Group) -> bool:
    """Whether a group is one kernel of at least two of the user's operators."""
    return group.kind == "kernel" and len(_working(graph, group.users)) > 1


def _row(graph: Graph, group: Group, target: Target) -> GroupRow:
    working = _working(graph, group.users)
    shown = working or [graph.user[n] for n in group.users]
    launches = len(working)
    levels = _levels(graph, group, [u for u in working if control(graph, u) is None], target)
    return GroupRow(
        id=group.id,
        kind=group.kind,
        operators=tuple(u.name for u in shown),
        lines=_lines(shown),
        launches_before=launches,
        launches_after=1 if group.kind == "kernel" else launches,
        bytes_before=sum(x.before for x in levels if x.level != "register"),
        bytes_after=sum(x.after for x in levels if x.level != "register"),
        levels=levels,
        predicted_us=group.predicted_us,
        eager_us=sum(user_op_us(graph, u, target) for u in working),
    )


def _lines(users: Iterable[UserOp]) -> tuple[str, ...]:
    """The source lines of some operators, one range a file: `model.py:12-17`."""
    found: dict[str, list[int]] = {}
    for u in users:
        if u.source.file:
            found.setdefault(PurePath(u.source.file).name, []).append(u.source.line)
    ranges = {file: (min(lines), max(lines)) for file, lines in found.items()}
    return tuple(f"{f}:{low}" if low == high else f"{f}:{low}-{high}" for f, (low, high) in ranges.items())


def _levels(graph: Graph, group: Group, working: list[UserOp], target: Target) -> tuple[LevelBytes, ...]:
    """Bytes by level of the group's operators run alone, and of the group as the plan runs it."""
    alone = [by_level(graph, user_traffic(graph, u), target) for u in working]
    together = alone
    if group.kind == "kernel":
        traffic = kernel_traffic(graph, group.nodes)
        together = [by_level(graph, traffic, target)]
    return tuple(LevelBytes(level, _total(alone, level), _total(together, level)) for level in LEVELS)


def _total(tables: list[dict[str, int]], level: str) -> int:
    return sum(t.get(level, 0) for t in tables)


def _sum_levels(rows: Iterable[tuple[LevelBytes, ...]]) -> tuple[LevelBytes, ...]:
    sums = {level: [0, 0] for level in LEVELS}
    for row in rows:
        for x in row:
            sums[x.level][0] += x.before
            sums[x.level][1] += x.after
    return tuple(LevelBytes(level, before, after) for level, (before, after) in sums.items())


def _shares(plan: Plan, target: Target) -> Shares:
    every: list[Work] = []
    chosen: list[Work] = []
    for _, p in plan.everywhere():
        for group in p.groups:
            work = [(p.graph, u) for u in _working(p.graph, group.users) if control(p.graph, u) is None]
            every += work
            chosen += work if fused(p.graph, group) else []
    time = _part(
        sum(user_op_us(g, u, target) for g, u in chosen), sum(user_op_us(g, u, target) for g, u in every)
    )
    return Shares(
        operators=_part(len(chosen), len(every)),
        bytes=_part(_moved(chosen), _moved(every)),
        time=time,
        limit=1 / (1 - time) if time < 1 else None,
    )


def _part(some: float, whole: float) -> float:
    return some / whole if whole else 0.0


def _moved(work: list[Work]) -> int:
    return sum(user_traffic(g, u).total for g, u in work)


def _remainders(plan: Plan, target: Target) -> tuple[Remainder, ...]:
    """Operators outside every fused kernel, the dearest first, each with the first reason that applies."""
    found: list[Remainder] = []
    for _, p in plan.everywhere():
        graph = p.graph
        for u in (u for g in p.groups if not fused(graph, g) for u in _working(graph, g.users)):
            code, message = _reason(p, u)
            if p.group_of[u.name].is_kernel:
                message = f"a kernel by itself: {message}"
            moved, us = user_traffic(graph, u).total, user_op_us(graph, u, target)
            if control(graph, u) is not None:
                moved, us = 0, target.framework_us  # what it runs is listed itself
            found.append(Remainder(u.label, moved, us, code, message))
    return tuple(sorted(found, key=lambda r: -r.predicted_us))


def _reason(plan: Plan, user: UserOp) -> tuple[str, str]:
    """Why an operator stands alone: it is a boundary itself, else the first cut at one of its edges."""
    if user.why:
        return user.why, f"{user.target}: {title(user.why)}"
    cuts = [c for c in plan.cuts if user.name in (c.producer, c.consumer)]
    if not cuts:
        return UNPLACED, "no operator beside it that could join"
    first: Cut = max(cuts, key=lambda c: c.cost_us)
    return first.code, first.message
