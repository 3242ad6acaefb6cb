"""`fusebound diff LEFT RIGHT`: what two saved plans do differently."""

from __future__ import annotations

from pathlib import Path

import click

from fusebound.cli.options import OUTPUT, Options, with_options
from fusebound.cli.output import emit


@click.command("diff", short_help="Compare two saved plans.")
@click.argument("left", type=click.Path(path_type=Path))
@click.argument("right", type=click.Path(path_type=Path))
@click.option("--fail", is_flag=True, help="Exit with 1 if the plans differ.")
@with_options(OUTPUT)
def command(options: Options, left: Path, right: Path, fail: bool) -> int:
    """Compare two plans: `-` is only in LEFT, `+` only in RIGHT, `!` a setting or figure that changed."""
    from fusebound.plan.plan import Plan

    found = Plan.load(left).diff(Plan.load(right))
    lines = found.lines()
    emit(
        options.format,
        text=str(found),
        data=lambda: {"same": not found, "differences": lines},
        rows=lambda: [("sign", "difference"), *((line[0], line[2:]) for line in lines)],
    )
    return 1 if fail and found else 0
