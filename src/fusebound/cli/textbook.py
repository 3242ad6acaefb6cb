"""`fusebound textbook`: the textbook's table, then the same graph under `tile`, with the traffic of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fusebound.cli.options import OUTPUT, Options, with_options
from fusebound.cli.output import emit

if TYPE_CHECKING:
    from rich.console import Console

    from fusebound.plan.plan import Plan
    from fusebound.target.target import Target

POLICIES = ("none", "textbook-strict", "textbook", "tile")
NAMES = {"none": "no fusion"}


@click.command("textbook", short_help="The textbook's checker, beside the policy `tile`.")
@click.option("--hardware", default="host", metavar="NAME", help="What to plan for.")
@with_options(OUTPUT)
def command(options: Options) -> None:
    """Print what the textbook's checker says of its example, and what the policies make of that graph."""
    from fusebound.api.functions import plan as make_plan
    from fusebound.target import get
    from fusebound.textbook.example import graph
    from fusebound.textbook.table import HEADER, rows

    target, example = get(options.hardware), graph()
    plans = {p: make_plan(example, policy=p, hardware=target) for p in POLICIES}
    table = rows()
    emit(
        options.format,
        text=lambda console: _show(console, plans, target),
        data=lambda: {
            "pairs": [dict(zip(HEADER, r.cells, strict=True)) | {"note": r.note} for r in table],
            "policies": [_figures(name, plan) for name, plan in plans.items()],
        },
        rows=lambda: [HEADER, *(r.cells for r in table)],
    )


def _figures(policy: str, plan: Plan) -> dict[str, object]:
    return {
        "policy": policy,
        "groups": [list(g.users) for g in plan.groups],
        "launches": len(plan.groups),
        "bytes": sum(g.bytes_after for g in plan.groups),
        "predicted_us": plan.predicted_us,
    }


def _show(console: Console, plans: dict[str, Plan], target: Target) -> None:
    from rich.padding import Padding

    from fusebound.report import units
    from fusebound.report.layout import plain_table
    from fusebound.textbook.table import HEADER, rows

    table = plain_table(*((title, "left") for title in HEADER))
    for row in rows():
        table.add_row(*row.cells)
    console.print(table)
    for row in rows():
        if row.note:
            console.print(Padding(row.note, (1, 1, 0, 1)))
    console.print("\n The same graph, 8192 x 2048 float32, under four policies:\n")
    traffic = plain_table(
        ("policy", "left"),
        ("groups", "left"),
        ("launches", "right"),
        ("bytes", "right"),
        ("predicted", "right"),
    )
    for policy, plan in plans.items():
        groups = " | ".join(" + ".join(g.users) for g in plan.groups)
        moved = units.size(sum(g.bytes_after for g in plan.groups))
        traffic.add_row(
            NAMES.get(policy, policy), groups, str(len(plan.groups)), moved, units.micros(plan.predicted_us)
        )
    console.print(traffic)
    console.print(f"\n predicted for {target.name}; docs/textbook.md says where the rules err")
