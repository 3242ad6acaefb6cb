"""`fusebound run MODEL`, the main job: capture, plan, build, verify, measure, and say what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusebound import scenarios
from fusebound.cli.options import MEASURE, MODEL, OUTPUT, PLAN, Options, with_options
from fusebound.cli.output import emit
from fusebound.cli.session import Session

if TYPE_CHECKING:
    from fusebound.report.schema import Report

VERIFY_SECONDS = 10.0
"""The main job begins no set of values after this long; `fusebound verify` gives itself a minute."""


@click.command("run", short_help="Capture, plan, build, verify and measure.")
@click.argument("model", required=False)
@click.option("--list", "list_", is_flag=True, help="List the built-in scenarios.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the whole report as JSON."
)
@click.option("--fail-slower", is_flag=True, help="Exit with 1 if the result is slower than eager.")
@with_options(MODEL, PLAN, MEASURE, OUTPUT)
def command(options: Options, model: str | None, list_: bool, output: Path | None, fail_slower: bool) -> int:
    """Capture MODEL, decide its fusion boundaries, build the kernels, check their numbers and measure them.

    No set of values to check begins after 10 s. Exits with 1 if an output is less accurate than allowed.
    """
    if list_:
        _list(options)
        return 0
    if model is None:
        raise click.UsageError("MODEL is missing; `fusebound run --list` lists the built-in ones")
    report = _run(Session(model, options))
    if output is not None:
        report.save(output)
    _emit(report, options)
    return 0 if report.ok and not (fail_slower and report.slower) else 1


def _run(session: Session) -> Report:
    """All phases, and the report of them; a plan without kernels leaves nothing to check or measure."""
    from fusebound.measure.environment import describe
    from fusebound.report.collect import report_of
    from fusebound.report.results import with_bench, with_phases, with_verify

    session.calibrate_first()
    report = report_of(session.plan, session.target, model=session.model.name)
    if session.plan.kernels:
        report = with_verify(report, session.verify(VERIFY_SECONDS))
        report = with_bench(report, session.bench())
    return with_phases(report, session.phases.seconds, describe())


def _emit(report: Report, options: Options) -> None:
    from fusebound.report import tables
    from fusebound.report.rows import group_rows

    emit(
        options.format,
        text=lambda console: tables.show(console, report),
        data=report.to_json,
        rows=lambda: group_rows(report),
    )


def _list(options: Options) -> None:
    width = max(len(s.name) for s in scenarios.SCENARIOS)
    emit(
        options.format,
        text="\n".join(f"{s.name:<{width}}  {s.summary}" for s in scenarios.SCENARIOS),
        data=lambda: [{"name": s.name, "summary": s.summary} for s in scenarios.SCENARIOS],
        rows=lambda: [("name", "summary"), *((s.name, s.summary) for s in scenarios.SCENARIOS)],
    )
