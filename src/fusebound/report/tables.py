"""A report as text: tables for a terminal of 100 columns or more, plain in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fusebound.plan.plan import Cut
from fusebound.report import units
from fusebound.report.schema import GroupRow, Ratio, Remainder, Report, Shares

LEVEL_NAMES = {"register": "on chip", "l2": "L2", "l3": "L3", "dram": "memory"}
REMAINDERS_SHOWN = 5
OPERATORS_SHOWN = 6


def show(console: Console, report: Report) -> None:
    """Print everything that the report holds: the table of groups first, what limits the result last."""
    console.print(heading(report))
    console.print(groups(report))
    console.print(_indented(*traffic(report)))
    if report.errors:
        console.print(errors(report))
    console.print(_indented(*summary(report)))
    if report.remainders:
        console.print(remainders(report))


def heading(report: Report) -> Text:
    """One line: what, and under which policy, numerics and target."""
    host = report.target if report.calibrated else f"{report.target} (not calibrated)"
    head = Text(f"\n{report.model}", style="bold")
    return head.append(
        f"   policy {report.policy}, numerics {report.numerics}, target {host}", style="not bold dim"
    )


def plain_table(*columns: tuple[str, str]) -> Table:
    """A table without rules; a column is (title, "left" | "right"). Numbers never wrap, text folds."""
    table = Table(box=None, pad_edge=True, padding=(0, 1), header_style="bold")
    for title, side in columns:
        if side == "right":
            table.add_column(title, justify="right", no_wrap=True)
        else:
            table.add_column(title, overflow="fold")
    return table


def groups(report: Report) -> Table:
    """One row a group: operators, launches and bytes before and after, predicted and measured time."""
    measured = any(g.measured_us is not None for g in report.groups)
    table = plain_table(
        ("group", "left"),
        ("operators", "left"),
        ("launches", "right"),
        ("bytes", "right"),
        ("from", "left"),
        ("eager", "right"),
        ("predicted", "right"),
        *((("measured", "right"),) if measured else ()),
    )
    for g in report.groups:
        cells = [g.id, operators(g), *_costs(g), units.micros(g.eager_us), units.micros(g.predicted_us)]
        if measured:
            cells.append(units.micros(g.measured_us))
        table.add_row(*cells, style="" if g.kind == "kernel" else "dim")
    table.add_section()
    total = [
        "total",
        f"{units.count(report.operators, 'operator')}, {units.count(report.kernels, 'kernel')}",
        _arrow(str(report.launches_before), str(report.launches_after)),
        _arrow(units.size(report.bytes_before), units.size(report.bytes_after)),
        "",
        units.micros(report.predicted_eager_us),
        units.micros(report.predicted_us),
    ]
    if measured:
        total.append(units.micros(sum(g.measured_us or 0.0 for g in report.groups)))
    table.add_row(*total, style="bold")
    return table


def operators(group: GroupRow) -> Text:
    """The operators of a group with the user's lines; a long list is cut in the middle and says so."""
    names = list(group.operators)
    if len(names) > OPERATORS_SHOWN:
        hidden = len(names) - OPERATORS_SHOWN
        names = [*names[: OPERATORS_SHOWN - 1], f"… {hidden} more …", names[-1]]
    if group.kind != "kernel":
        names = [f"{n} · framework" for n in names]
    return Text(", ".join(names))


def _costs(group: GroupRow) -> tuple[str, str, str]:
    nearest = [LEVEL_NAMES[x.level] for x in group.levels if x.level != "register" and x.after]
    return (
        _arrow(str(group.launches_before), str(group.launches_after)),
        _arrow(units.size(group.bytes_before), units.size(group.bytes_after)),
        "/".join(nearest),
    )


def _arrow(before: str, after: str) -> str:
    return after if before == after else f"{before} → {after}"


def traffic(report: Report) -> Iterator[Text]:
    """Bytes by memory level before and after, and the reuse that stays on chip."""
    moved = [x for x in report.levels if x.level != "register" and (x.before or x.after)]
    parts = [f"{LEVEL_NAMES[x.level]} {_arrow(units.size(x.before), units.size(x.after))}" for x in moved]
    reused = sum(x.after for x in report.levels if x.level == "register")
    line = "; ".join(parts) or "none"
    yield _labelled("traffic", f"{line}; reused on chip {units.size(reused)} (written and read back before)")


def errors(report: Report) -> Table:
    """Error of each output against float64, fused beside eager."""
    table = plain_table(
        ("error against fp64", "left"),
        ("rms fused", "right"),
        ("eager", "right"),
        ("max fused", "right"),
        ("eager", "right"),
        ("verdict", "left"),
    )
    for e in report.errors:
        figures = (e.fused_rms, e.eager_rms, e.fused_max, e.eager_max)
        note = e.verdict if e.ok else f"FAILED on {e.set}: {e.verdict}; {e.detail}"
        table.add_row(e.output, *(units.error(x) for x in figures), note, style="" if e.ok else "bold red")
    return table


def summary(report: Report) -> Iterator[Text]:
    """Speed-up, time split, shares and their limit, a line each."""
    for t in report.timings:
        yield _labelled(
            t.name, f"{units.micros(t.median_us)} ({_spread(t.low_us, t.high_us)}, {t.rounds} rounds)"
        )
    for r in report.ratios:
        yield _labelled("speed-up", _ratio(r), style="bold")
    yield _labelled(
        "model",
        f"predicted {units.micros(report.predicted_eager_us)} → {units.micros(report.predicted_us)}; "
        f"no plan can take less than {units.micros(report.lower_bound_us)}",
    )
    if report.phases:
        split = ", ".join(f"{p.name} {units.seconds(p.seconds)}" for p in report.phases)
        yield _labelled(
            "time spent", f"{split}; {units.seconds(sum(p.seconds for p in report.phases))} in all"
        )
    yield _labelled("fused", _shares(report.shares))


def _shares(s: Shares) -> str:
    parts = f"{units.percent(s.operators)} of operators, {units.percent(s.bytes)} of bytes, "
    limit = "nothing is left unfused"
    if s.limit is not None:
        limit = f"a speed-up of {units.times(s.limit)} at most, if that part took no time"
    return f"{parts}{units.percent(s.time)} of eager's time: {limit}"


def _ratio(r: Ratio) -> str:
    memory = "memory reused" if r.memory == "reused" else "outputs held alive"
    return f"{units.times(r.value)} over {r.baseline}, {memory} ({_spread(r.low, r.high, 'x')})"


def _spread(low: float, high: float, unit: str = "") -> str:
    if unit:
        return f"{low:.2f}–{high:.2f}{unit}"
    return f"{units.micros(low)}–{units.micros(high)}"


def remainders(report: Report) -> Table:
    """The dearest operators outside every fused kernel, and why."""
    table = plain_table(
        ("largest unfused", "left"), ("bytes", "right"), ("eager", "right"), ("code", "left"), ("why", "left")
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
        ("cut", "left"), ("saves", "right"), ("costs", "right"), ("code", "left"), ("why", "left")
    )
    dearest = sorted(found, key=lambda c: -c.cost_us)
    for c in dearest[:shown]:
        table.add_row(
            f"{c.producer} → {c.consumer}", units.size(c.bytes), units.micros(c.cost_us), c.code, c.message
        )
    if len(dearest) > shown:
        table.add_row(f"… {len(dearest) - shown} more", style="dim")
    return table


def _labelled(label: str, text: str, style: str = "") -> Text:
    return Text(f"{label:<11} ", style="bold").append(text, style=style or "not bold")


def _indented(*lines: RenderableType) -> Padding:
    return Padding(Group(*lines), (1, 0, 1, 1))
