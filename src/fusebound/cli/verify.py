"""`fusebound verify MODEL`: the fused kernels against a float64 oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fusebound.cli.options import MODEL, OUTPUT, PLAN, Options, with_options
from fusebound.cli.output import emit
from fusebound.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Console

    from fusebound.report.schema import Report


@click.command("verify", short_help="Check numbers against float64.")
@click.argument("model")
@with_options(MODEL, PLAN, OUTPUT)
def command(options: Options, model: str) -> int:
    """Run MODEL fused, eagerly and in float64, on given, drawn and special values, and compare the errors.

    Exits with 1 if an output is less accurate than allowed.
    """
    from fusebound.report.collect import report_of
    from fusebound.report.results import with_verify
    from fusebound.report.rows import error_rows

    session = Session(model, options)
    report = with_verify(report_of(session.plan, session.target, model=session.model.name), session.verify())
    emit(
        options.format,
        text=lambda console: _show(console, report),
        data=report.to_json,
        rows=lambda: error_rows(report),
    )
    return 0 if report.ok else 1


def _show(console: Console, report: Report) -> None:
    from fusebound.report import tables

    console.print(tables.heading(report))
    console.print(tables.errors(report))
    console.print(tables.checks(report))
