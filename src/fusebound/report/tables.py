"""A report as text: tables for a terminal of 100 columns or more, plain in a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from fusebound.plan.plan import Cut
from fusebound.report import units
from fusebound.report.error_table import errors
from fusebound.report.group_table import groups
from fusebound.report.layout import LEVEL_NAMES, arrow, labelled, plain_table
from fusebound.report.schema import Ratio, Remainder, Report, Shares, Timing

REMAINDERS_SHOWN = 5
MEMORY = {"reused": "memory reused", "held": "outputs held alive"}


def show(console: Console, report: Report) -> None:
    """Print everything that the report holds: the table of groups first, what limits the result last."""
    if not report.operators:
        for section in (heading(report), verdict(report)):
            console.print()
            console.print(section)
        return
    sections: list[RenderableType] = [heading(report), groups(report), traffic(report)]
    if report.errors:
        sections += [errors(report), checks(report)]
    if report.timings:
        sections.append(timings(report))
    sections += [summary(report), verdict(report)]
    if report.remainders:
        sections.append(remainders(report))
    for section in sections:
        if not isinstance(section, Table) or section.row_count:
            console.print()
            console.print(section)


def heading(report: Report) -> Text:
    """One line: what, and under which policy, numerics and target."""
    host = report.target if report.calibrated else f"{report.target} (not calibrated)"
    head = Text(f" {report.model}", style="bold")
    maker = f"policy {report.policy}" if report.judged == "fused" else f"compiled by {report.judged}"
    return head.append(f"   {maker}, numerics {report.numerics}, target {host}", style="not bold dim")


def traffic(report: Report) -> Table:
    """Bytes by memory level before and after, and the reuse that stays on chip."""
    lines = [
        (LEVEL_NAMES.get(x.level, x.level), arrow(units.size(x.before), units.size(x.after)))
        for x in report.levels
        if x.level != "register" and (x.before or x.after)
    ]
    for x in report.levels:
        if x.level == "register" and x.after:
            reuse = arrow(units.size(x.before), units.size(x.after))
            lines.append(("on chip", f"{reuse} of intermediate values re-used without leaving the core"))
    return labelled(lines)


def verdict(report: Report) -> Table:
    """One line where the answer is not to fuse, or not to believe it."""
    lines: list[tuple[str, str]] = []
    if not report.kernels:
        lines.append(("verdict", f"{_unfused(report)}: the program stays as it is"))
    if not report.ok:
        lines.append(("verdict", "the numbers are worse than allowed: do not use this plan"))
    elif report.slower:
        lines.append(("verdict", "slower than eager on these inputs: fusebound.compile keeps eager for them"))
    return labelled(lines)


def _unfused(report: Report) -> str:
    if not report.operators:
        return "nothing is computed" + (", there are only views" if report.views else "")
    if report.policy == "none":
        return "policy none fuses nothing"
    return "no group of operators is worth a kernel here"


def checks(report: Report) -> Table:
    """What else was checked, a line each."""
    return labelled(("checked" if i == 0 else "", line) for i, line in enumerate(report.checks))


def summary(report: Report) -> Table:
    """Prediction, time split, shares and their limit, and what to beware of, a line each."""
    lines: list[tuple[str, str]] = []
    predicted = f"{units.micros(report.predicted_eager_us)} → {units.micros(report.predicted_us)}"
    bound = units.micros(report.lower_bound_us)
    lines.append(("predicted", f"{predicted}; no plan of these kernels takes less than {bound}"))
    if report.phases:
        split = ", ".join(f"{p.name} {units.seconds(p.seconds)}" for p in report.phases)
        lines.append(
            ("time spent", f"{split}; {units.seconds(sum(p.seconds for p in report.phases))} in all")
        )
    lines.append(("fused", _shares(report.shares)))
    lines += [("beware" if i == 0 else "", w) for i, w in enumerate(report.warnings)]
    return labelled(lines)


def timings(report: Report) -> Table:
    """Times and speed-ups, with memory reused between calls and with every call's outputs held alive."""
    memories = tuple(dict.fromkeys(t.memory for t in report.timings))
    table = plain_table(("measured", "whole"), *((MEMORY.get(m, m), "whole") for m in memories))
    for name in dict.fromkeys(t.name for t in report.timings):
        found = {t.memory: t for t in report.timings if t.name == name}
        table.add_row(name, *(_timing(found[m]) if m in found else "" for m in memories))
    for baseline in dict.fromkeys(r.baseline for r in report.ratios):
        ratios = (report.ratio(baseline, m) for m in memories)
        cells = (_ratio(r) if r is not None else "" for r in ratios)
        table.add_row(f"over {baseline}", *cells, style="bold")
    return table


def _timing(t: Timing) -> str:
    return f"{units.micros(t.median_us)} ({units.micros(t.low_us)} to {units.micros(t.high_us)})"


def _ratio(r: Ratio) -> str:
    return f"{units.times(r.value)} ({r.low:.2f} to {r.high:.2f})"


def comparison(reports: Sequence[Report]) -> Table:
    """One row a model: fused and eager times, speed-up with memory reused and with outputs held alive."""
    table = plain_table(
        ("model", "left"),
        ("kernels", "right"),
        ("eager", "right"),
        ("fused", "right"),
        ("speed-up", "right"),
        ("95 %", "right"),
        ("held alive", "right"),
    )
    for r in reports:
        median = {t.name: t.median_us for t in r.timings if t.memory == "reused"}
        reused, held = r.ratio(), r.ratio(memory="held")
        table.add_row(
            r.model,
            str(r.kernels),
            units.micros(median.get("eager")),
            units.micros(median.get("fused")),
            units.times(reused.value) if reused else "-",
            f"{reused.low:.2f} to {reused.high:.2f}" if reused else "-",
            units.times(held.value) if held else "-",
            style="red" if r.slower else "",
        )
    return table


def _shares(s: Shares) -> str:
    parts = f"{units.percent(s.operators)} of operators, {units.percent(s.bytes)} of bytes, "
    limit = "nothing is left unfused"
    if s.limit is not None:
        limit = f"if that part took no time, a speed-up of {units.times(s.limit)}"
    return f"{parts}{units.percent(s.time)} of eager's predicted time: {limit}"


def remainders(report: Report) -> Table:
    """The dearest operators outside every fused kernel, and why."""
    table = plain_table(
        ("largest unfused", "left"),
        ("bytes", "right"),
        ("eager", "right"),
        ("code", "whole"),
        ("why", "left"),
    )
    for r in report.remainders[:REMAINDERS_SHOWN]:
        table.add_row(r.operator, units.size(r.bytes), units.micros(r.predicted_us), r.code, r.message)
    _count_hidden(table, report.remainders)
    return table


def _count_hidden(table: Table, rows: Sequence[Remainder]) -> None:
    hidden = rows[REMAINDERS_SHOWN:]
    if hidden:
        moved, time = sum(r.bytes for r in hidden), sum(r.predicted_us for r in hidden)
        table.add_row(f"… {len(hidden)} more", units.size(moved), units.micros(time), "", "", style="dim")


def cuts(found: Sequence[Cut], shown: int) -> Table:
    """The dearest edges between groups, and why each was not fused."""
    table = plain_table(
        ("cut", "left"), ("extra bytes", "right"), ("extra time", "right"), ("code", "whole"), ("why", "left")
    )
    dearest = sorted(found, key=lambda c: -c.cost_us)
    for c in dearest[:shown]:
        table.add_row(
            f"{c.producer} → {c.consumer}", units.size(c.bytes), units.micros(c.cost_us), c.code, c.message
        )
    if len(dearest) > shown:
        table.add_row(f"… {len(dearest) - shown} more", style="dim")
    return table
