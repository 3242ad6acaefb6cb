"""`fusebound why MODEL A B`: the four gates for one pair of operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from fusebound.cli.options import MODEL, OUTPUT, PLAN, Options, with_options
from fusebound.cli.output import emit
from fusebound.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Console

    from fusebound.gates.base import Evidence, Verdict
    from fusebound.plan.explain import Why

MARKS = {
    "pass": ("✓", "green"),
    "conditional": ("✓", "yellow"),
    "fail": ("✗", "red"),
    "unknown": ("?", "yellow"),
}

SIDES = ("left", "right", "left", "right", "right", "left")


@click.command("why", short_help="The four gates for one pair.")
@click.argument("model")
@click.argument("a")
@click.argument("b")
@with_options(MODEL, PLAN, OUTPUT)
def command(options: Options, model: str, a: str, b: str) -> None:
    """Say why operators A and B of MODEL are, or are not, one kernel.

    Every gate answers, even after the first refusal, with its numbers, their margins, and the smallest change
    that would flip a refusal. Operators are named as in your code: `softmax`, `add_2`, `layers.0.mlp.act`.
    """
    session = Session(model, options)
    found = session.plan.why(a, b)
    emit(
        options.format,
        text=lambda console: show(console, found),
        data=lambda: _record(found),
        rows=lambda: _rows(found),
    )


def show(console: Console, why: Why) -> None:
    """Print the answer, then gate by gate."""
    from fusebound.report import units

    console.print(f"\n{_answer(why)}")
    judged = [f"{why.inside}{n}" for n in why.group if n not in (why.a.name, why.b.name)]
    if judged:
        console.print(f"judged as one group with {', '.join(judged)}")
    if why.obstacles:
        console.print(f"the obstacle is {', '.join(why.inside + u.label for u in why.obstacles)}")
    console.print(f"one kernel would save {units.size(why.saved_bytes)} of traffic\n")
    for verdict in why.judgement.verdicts:
        _gate(console, verdict)
    if why.codes:
        console.print(f"more about a code: fusebound explain {why.codes[0]}")


def _answer(why: Why) -> str:
    if why.fused:
        return f"{why.pair}: one kernel"
    if why:
        return f"{why.pair}: may fuse, and the plan keeps them apart"
    veto = why.judgement.first
    assert veto is not None
    return f"{why.pair}: not fused, {veto.code} in the {veto.gate} gate"


def _gate(console: Console, v: Verdict) -> None:
    from rich.text import Text

    from fusebound.report.layout import plain_table

    mark, colour = MARKS[v.state]
    head = Text(" ").append(mark, style=colour)
    head.append(f" {v.gate:<11}", style="bold").append(f" {v.state}")
    if v.state != "pass":
        head.append(f" {v.code}")
    console.print(head.append(f"  {v.message}"))
    if v.evidence:
        table = plain_table(*(("", side) for side in SIDES))
        table.show_header = False
        for e in v.evidence:
            table.add_row(f"     {e.quantity}", *_cells(e))
        console.print(table)
    if v.counterfactual:
        console.print(f"      what would flip it: {v.counterfactual}")
    console.print()


def _cells(e: Evidence) -> tuple[str, ...]:
    limited = e.limit != ""
    return (
        figure(e.value, e.unit),
        e.relation if limited else "",
        figure(e.limit, e.unit) if limited else "",
        "" if e.margin is None else f"margin {figure(e.margin, e.unit)}",
        e.source,
    )


def figure(x: float | int | str, unit: str) -> str:
    """A figure of evidence with its unit: bytes and times scaled, integers whole, floats with four digits."""
    from fusebound.report import units

    if isinstance(x, str):
        return x
    if unit == "B":
        return units.size(int(x))
    return units.micros(x) if unit == "µs" else f"{number(x)} {unit}".rstrip()


def number(x: float | int) -> str:
    """A plain number: integers whole, floats with four digits."""
    if isinstance(x, float):
        return f"{x:.4g}"
    return f"{x:,}"


def _record(why: Why) -> dict[str, object]:
    from fusebound.plan.record import judgement_to_json

    return {
        "a": why.inside + why.a.name,
        "b": why.inside + why.b.name,
        "group": [why.inside + name for name in why.group],
        "fused": why.fused,
        "can_fuse": bool(why),
        "codes": list(why.codes),
        "saved_bytes": why.saved_bytes,
        "obstacles": [why.inside + u.name for u in why.obstacles],
        "gates": judgement_to_json(why.judgement),
        "counterfactual": why.counterfactual,
    }


def _rows(why: Why) -> Iterator[tuple[object, ...]]:
    yield (
        "gate",
        "state",
        "code",
        "message",
        "quantity",
        "value",
        "relation",
        "limit",
        "unit",
        "margin",
        "source",
    )
    for v in why.judgement.verdicts:
        head = (v.gate, v.state, v.code, v.message)
        if not v.evidence:
            yield (*head, *("",) * 7)
        for e in v.evidence:
            yield (*head, e.quantity, e.value, e.relation, e.limit, e.unit, e.margin, e.source)
