"""The table of a plan's groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rich.table import Table

from fusebound.report import units
from fusebound.report.layout import LEVEL_NAMES, arrow, plain_table
from fusebound.report.schema import GroupRow, Report
from fusebound.words import count

OPERATORS_SHOWN = 6
LIGHT = 0.01
"""Share of eager's predicted time below which a framework operator does not get a line of its own."""


def groups(report: Report) -> Table:
    """One row a group: operators, launches and bytes before and after, predicted and measured time."""
    measured = any(g.measured_us is not None for g in report.groups)
    table = plain_table(
        ("group", "whole"),
        ("operators", "left"),
        ("launches", "right"),
        ("bytes", "right"),
        ("from", "whole"),
        ("predicted", "right"),
        *((("measured", "right"),) if measured else ()),
    )
    for g in _shown(report):
        table.add_row(*_cells(g, measured), style="" if g.kind == "kernel" else "dim")
    table.add_row(*_total(report, measured), style="bold")
    return table


def _shown(report: Report) -> Iterator[GroupRow]:
    """The groups without views; framework operators in a row that hardly count share one line."""
    light: list[GroupRow] = []
    for g in report.groups:
        if not g.launches_before:
            continue
        if g.kind != "kernel" and g.eager_us < LIGHT * report.predicted_eager_us:
            light.append(g)
            continue
        if light:
            yield _joined(light)
            light = []
        yield g
    if light:
        yield _joined(light)


def _joined(rows: Sequence[GroupRow]) -> GroupRow:
    """Several groups as one line of text, figures added up."""
    measured = [g.measured_us for g in rows if g.measured_us is not None]
    return replace(
        rows[0],
        operators=tuple(name for g in rows for name in g.operators),
        lines=_span(line for g in rows for line in g.lines),
        launches_before=sum(g.launches_before for g in rows),
        launches_after=sum(g.launches_after for g in rows),
        bytes_before=sum(g.bytes_before for g in rows),
        bytes_after=sum(g.bytes_after for g in rows),
        eager_us=sum(g.eager_us for g in rows),
        predicted_us=sum(g.predicted_us for g in rows),
        measured_us=sum(measured) if measured else None,
    )


def _span(places: Iterable[str]) -> tuple[str, ...]:
    """`m.py:3`, `m.py:5-7` → `m.py:3-7`."""
    found: dict[str, list[int]] = {}
    for place in places:
        file, _, lines = place.rpartition(":")
        found.setdefault(file, []).extend(int(n) for n in lines.split("-"))
    return tuple(f"{f}:{min(n)}" if min(n) == max(n) else f"{f}:{min(n)}-{max(n)}" for f, n in found.items())


def _cells(g: GroupRow, measured: bool) -> list[str]:
    nearest = [LEVEL_NAMES.get(x.level, x.level) for x in g.levels if x.level != "register" and x.after]
    return [
        g.id if g.kind == "kernel" else "eager",
        operators(g),
        arrow(str(g.launches_before), str(g.launches_after)),
        arrow(units.size(g.bytes_before), units.size(g.bytes_after)),
        "/".join(nearest),
        arrow(units.micros(g.eager_us), units.micros(g.predicted_us)),
        *((units.micros(g.measured_us),) if measured else ()),
    ]


def _total(report: Report, measured: bool) -> list[str]:
    return [
        "total",
        f"{count(report.operators, 'operator')}, {count(report.kernels, 'kernel')}",
        arrow(str(report.launches_before), str(report.launches_after)),
        arrow(units.size(report.bytes_before), units.size(report.bytes_after)),
        "",
        arrow(units.micros(report.predicted_eager_us), units.micros(report.predicted_us)),
        *((units.micros(sum(g.measured_us or 0.0 for g in report.groups)),) if measured else ()),
    ]


def operators(group: GroupRow) -> str:
    """The operators of a group and where they are written; of a long list the first ones and the last."""
    names = list(group.operators)
    if len(names) > OPERATORS_SHOWN:
        names = [*names[: OPERATORS_SHOWN - 1], f"… {len(names) - OPERATORS_SHOWN} more …", names[-1]]
    where = f" ({', '.join(group.lines)})" if group.lines else ""
    return ", ".join(names) + where
