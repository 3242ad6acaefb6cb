"""`fusebound verify MODEL`: the fused kernels against a float64 oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import click

from fusebound.cli.options import MODEL, OUTPUT, PLAN, Options, with_options
from fusebound.cli.output import emit
from fusebound.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Console

    from fusebound.report.schema import Report
    from fusebound.runtime.executable import Executable
    from fusebound.verify.call import Capture
    from fusebound.verify.shapes import ShapeCheck


@click.command("verify", short_help="Check numbers against float64.")
@click.argument("model")
@click.option("--boundary", is_flag=True, help="Rebuild and check at boundary shapes and layouts as well.")
@with_options(MODEL, PLAN, OUTPUT)
def command(options: Options, model: str, boundary: bool) -> int:
    """Run MODEL fused, eagerly and in float64, on given, drawn and special values, and compare the errors of each
    output and of what each kernel stores.

    --boundary does so again at sizes round a vector and a tile, at sizes 0 and 1, transposed, strided and expanded.
    Exits with 1 if an output is less accurate than allowed.
    """
    from fusebound.report.collect import report_of
    from fusebound.report.results import with_shapes, with_verify
    from fusebound.report.rows import error_rows

    session = Session(model, options)
    report = with_verify(report_of(session.plan, session.target, model=session.model.name), session.verify())
    if boundary:
        report = with_shapes(report, _shapes(session))
    emit(
        options.format,
        text=lambda console: _show(console, report),
        data=report.to_json,
        rows=lambda: error_rows(report),
    )
    return 0 if report.ok else 1


def _shapes(session: Session) -> tuple[ShapeCheck, ...]:
    from fusebound.verify.shapes import verify_shapes

    given = session.model

    def build(args: tuple[Any, ...]) -> tuple[Executable, Capture]:
        exe, captured = session.build(replace(given, args=args, graph=None, plan=None))
        return exe, cast("Capture", captured)

    with session.phases("boundary"):
        return verify_shapes(build, given.fn, given.args, numerics=session.options.numerics)


def _show(console: Console, report: Report) -> None:
    from fusebound.report import error_table, tables

    sections = [error_table.three_ways(report), error_table.stored(report), tables.checks(report)]
    for section in (tables.heading(report), *(s for s in sections if s.row_count)):
        console.print()
        console.print(section)
