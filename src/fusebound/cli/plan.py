"""`fusebound plan MODEL`: boundaries, traffic and launches before and after, the cuts and their reasons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fusebound.cli.options import MODEL, OUTPUT, PLAN, Options, with_options
from fusebound.cli.output import emit
from fusebound.cli.session import Session
from fusebound.words import count

if TYPE_CHECKING:
    from rich.console import Console

    from fusebound.plan.plan import Plan
    from fusebound.report.schema import Report

CUTS_SHOWN = 12


@click.command("plan", short_help="Decide the fusion boundaries.")
@click.argument("model")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write the plan as JSON.")
@click.option(
    "--cuts", type=click.IntRange(0), default=CUTS_SHOWN, metavar="N", help="How many cuts to list."
)
@with_options(MODEL, PLAN, OUTPUT)
def command(options: Options, model: str, save: Path | None, cuts: int) -> None:
    """Decide where MODEL is cut into kernels, and print what that does to launches and bytes.

    Nothing is built or measured. A saved plan can be given as MODEL, compared with `diff`, and kept in CI.
    """
    from fusebound.report.collect import report_of
    from fusebound.report.rows import group_rows

    session = Session(model, options)
    plan = session.plan
    report = report_of(plan, session.target, model=session.model.name)
    if save is not None:
        plan.save(save)
        session.phases.say(f"plan written to {save}")
    emit(
        options.format,
        text=lambda console: _show(console, report, plan, cuts),
        data=plan.to_json,
        rows=lambda: group_rows(report),
    )


def _show(console: Console, report: Report, plan: Plan, shown: int) -> None:
    from fusebound.report import tables, units

    tables.show(console, report)
    cuts = [c for _, p in plan.everywhere() for c in p.cuts]
    if cuts:
        console.print()
        console.print(tables.cuts(cuts, shown))
    judged = count(sum(len(p.decisions) for _, p in plan.everywhere()), "candidate")
    console.print(f"\n {judged} judged; the lower bound lies {units.percent(plan.gap)} below")
