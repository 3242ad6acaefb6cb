"""`fusebound bench MODEL`: the fused program against eager and, on request, Inductor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from fusebound import scenarios
from fusebound.cli.options import MEASURE, MODEL, OUTPUT, PLAN, Options, with_options
from fusebound.cli.output import emit
from fusebound.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Console

    from fusebound.report.schema import Report


@click.command("bench", short_help="Measure against eager.")
@click.argument("model", required=False)
@click.option("--all", "all_", is_flag=True, help="Measure every built-in scenario.")
@with_options(MODEL, PLAN, MEASURE, OUTPUT)
def command(options: Options, model: str | None, all_: bool) -> int:
    """Time MODEL fused and otherwise in one interleaved run, and print the ratios.

    Exits with 1 if it is slower than eager, confirmed in three runs.
    """
    if (model is None) is not all_:
        raise click.UsageError("give MODEL, or --all for every scenario")
    names = scenarios.names() if model is None else (model,)
    reports = [_measure(Session(name, options)) for name in names]
    emit(
        options.format,
        text=lambda console: _show(console, reports),
        data=lambda: [r.to_json() for r in reports] if all_ else reports[0].to_json(),
        rows=lambda: _rows(reports),
    )
    return 1 if any(r.slower for r in reports) else 0


def _measure(session: Session) -> Report:
    from fusebound.report.collect import report_of
    from fusebound.report.results import with_bench

    session.phases.say(session.spec)
    report = report_of(session.plan, session.target, model=session.model.name)
    return with_bench(report, session.bench()) if session.plan.kernels else report


def _show(console: Console, reports: list[Report]) -> None:
    from fusebound.report import tables

    if len(reports) > 1:
        console.print(tables.comparison(reports))
        return
    (report,) = reports
    for section in (
        tables.heading(report),
        tables.timings(report) if report.timings else tables.verdict(report),
    ):
        console.print()
        console.print(section)


def _rows(reports: list[Report]) -> Iterator[tuple[object, ...]]:
    from fusebound.report.rows import timing_rows

    for i, report in enumerate(reports):
        header, *rows = timing_rows(report)
        if i == 0:
            yield ("model", *header)
        yield from ((report.model, *row) for row in rows)
