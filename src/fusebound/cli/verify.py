"""`fusebound verify MODEL`: the fused kernels against a float64 oracle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from fusebound.cli.options import MODEL, OUTPUT, PLAN, Options, with_options
from fusebound.cli.output import emit
from fusebound.cli.session import Session
from fusebound.files import write_text

if TYPE_CHECKING:
    from rich.console import Console

    from fusebound.report.schema import Report
    from fusebound.runtime.executable import Executable
    from fusebound.verify.call import Capture
    from fusebound.verify.result import VerifyResult
    from fusebound.verify.shapes import ShapeCheck


@click.command("verify", short_help="Check numbers against float64.")
@click.argument("model")
@click.option("--boundary", is_flag=True, help="Rebuild and check at boundary shapes and layouts as well.")
@click.option("--bisect", is_flag=True, help="Find the boundary and the smallest input that make it differ.")
@click.option(
    "--against",
    type=click.Choice(("inductor",)),
    multiple=True,
    help="Check what Inductor makes of MODEL instead of the plan.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("fusebound_repro.py"),
    help="Where --bisect writes its reproduction.",
)
@with_options(MODEL, PLAN, OUTPUT)
def command(options: Options, model: str, boundary: bool, bisect: bool, output: Path) -> int:
    """Run MODEL fused, eagerly and in float64, on given, drawn and special values, and compare the errors of each
    output and of what each kernel stores. No set of values begins after 60 s.

    --boundary does so again at sizes round a vector and a tile, at sizes 0 and 1, transposed, strided and expanded.
    --bisect, where something fails, finds the kernel, the fewest operators and the smallest input that show it, and
    writes a script that shows it alone. Exits with 1 if an output is less accurate than allowed.
    """
    from fusebound.report.rows import error_rows

    report = _checked(Session(model, options), boundary, output if bisect else None)
    emit(
        options.format,
        text=lambda console: _show(console, report),
        data=report.to_json,
        rows=lambda: error_rows(report),
    )
    return 0 if report.ok else 1


def _checked(session: Session, boundary: bool, script: Path | None) -> Report:
    """The report of all checks; `script` is where a failure is written that was asked to be found."""
    from fusebound.report.collect import report_of
    from fusebound.report.results import with_shapes, with_verify

    inductor = "inductor" in session.options.against
    found = session.verify_inductor() if inductor else session.verify()
    report = report_of(session.plan, session.target, model=session.model.name)
    report = with_verify(report, found, "inductor" if inductor else "fused")
    if boundary:
        report = with_shapes(report, _shapes(session))
    if script is None:
        return report
    if found.ok:
        session.phases.say(f"nothing fails: there is nothing to find, and {script} is not written")
        return report
    return _bisected(session, report, found, script)


def _bisected(session: Session, report: Report, found: VerifyResult, output: Path) -> Report:
    """The report with what is to blame; writes the script."""
    from fusebound.api.bisection import bisect_inductor, bisect_plan
    from fusebound.api.python_model import place_of
    from fusebound.report.results import with_culprit
    from fusebound.verify.reproduce import script

    model, captured = session.model, session.captured
    inductor = "inductor" in session.options.against
    with session.phases("bisect"):
        if inductor:
            culprit = bisect_inductor(captured, model.args, model.kwargs, found)
        else:
            culprit = bisect_plan(session.executable, captured, model.args, model.kwargs, found)
    if culprit is None:
        session.phases.say("the failure did not come back when it was looked for")
        return report
    if culprit.source is not None:
        plan = None if inductor else session.plan
        text = script(culprit, plan, session.options.numerics, place_of(session.spec))
        write_text(output, text)
    return with_culprit(report, culprit, str(output) if culprit.source else "")


def _shapes(session: Session) -> tuple[ShapeCheck, ...]:
    from fusebound.verify.shapes import verify_shapes

    given = session.model

    def build(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Executable, Capture]:
        exe, captured = session.build(replace(given, args=args, kwargs=kwargs, graph=None, plan=None))
        return exe, cast("Capture", captured)

    with session.phases("boundary"):
        return verify_shapes(build, given.fn, given.args, given.kwargs, numerics=session.options.numerics)


def _show(console: Console, report: Report) -> None:
    from fusebound.report import error_table, tables

    sections = [error_table.three_ways(report), error_table.stored(report), tables.checks(report)]
    if report.culprit is not None:
        sections.append(error_table.culprit(report.culprit))
    for section in (tables.heading(report), *(s for s in sections if s.row_count)):
        console.print()
        console.print(section)
