"""`fusebound log MODEL`: every decision of the planner, in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from fusebound.cli.options import MODEL, OUTPUT, PLAN, Options, with_options
from fusebound.cli.output import emit
from fusebound.cli.session import Session
from fusebound.words import count

if TYPE_CHECKING:
    from rich.console import Console

    from fusebound.gates.base import Verdict
    from fusebound.gates.decide import Judgement
    from fusebound.plan.plan import Decision, Plan

GATES = ("dependence", "precision", "resources", "gain")


@click.command("log", short_help="Every decision in order.")
@click.argument("model")
@click.option("--operator", metavar="NAME", help="Only decisions about this operator of the model.")
@click.option("--gate", type=click.Choice(GATES), help="Only decisions that this gate refuses.")
@click.option("--code", metavar="CODE", help="Only decisions that carry this code.")
@with_options(MODEL, PLAN, OUTPUT)
def command(options: Options, model: str, operator: str | None, gate: str | None, code: str | None) -> None:
    """Print every candidate that the planner judged for MODEL, and what the gates said."""
    if code is not None:
        known_code(code)
    plan = Session(model, options).plan
    chosen = list(_matching(plan, operator, gate, code))
    emit(
        options.format,
        text=lambda console: _show(
            console, chosen, sum(len(p.decisions) for _, p in plan.everywhere()), gate
        ),
        data=lambda: [_record(d) for d in chosen],
        rows=lambda: _rows(chosen),
    )


def known_code(code: str) -> None:
    """Raise UsageError (E101) for a code that no gate gives."""
    from fusebound.cli.explain import pages
    from fusebound.gates.pages import page

    page(code, {c: text for c, text in pages().items() if c.startswith("F")})


def _matching(plan: Plan, operator: str | None, gate: str | None, code: str | None) -> Iterator[Decision]:
    """The decisions of the plan, then those of its subgraphs, whose operators are called `cond.true/mul`."""
    from fusebound.ir.names import locate

    path, about = locate(plan.graph, operator) if operator else ((), None)
    for prefix, p in plan.everywhere():
        if about is not None and p is not plan.at(path):
            continue
        for d in p.decisions:
            if about is not None and about.name not in (d.a, d.b):
                continue
            if gate is not None and not _refuses(getattr(d.judgement, gate)):
                continue
            if code is not None and code.upper() not in {v.code for v in d.judgement.verdicts}:
                continue
            yield replace(d, a=prefix + d.a, b=prefix + d.b)


def _refuses(verdict: Verdict) -> bool:
    """Whether a gate objects; that of resources knows nothing where there is no common iteration space to judge."""
    return not verdict and (verdict.gate, verdict.state) != ("resources", "unknown")


def _show(console: Console, decisions: list[Decision], judged: int, gate: str | None) -> None:
    from fusebound.report.layout import plain_table

    if not decisions:
        none = f" none of these among {count(judged, 'decision')}"
        console.print(none if judged else " nothing was judged")
        return

    table = plain_table(
        ("step", "right"),
        ("pair", "left"),
        ("ops", "right"),
        ("answer", "left"),
        ("code", "left"),
        ("why", "left"),
    )
    for d in decisions:
        code, why = _reason(d.judgement, gate)
        answer = "fuse" if d.accepted else "no"
        table.add_row(
            str(d.step),
            f"{d.a} + {d.b}",
            str(d.operators),
            answer,
            code,
            why,
            style="" if d.accepted else "dim",
        )
    console.print(table)
    fused = sum(d.accepted for d in decisions)
    chosen = f"{len(decisions):,} of " if len(decisions) < judged else ""
    console.print(f"\n {chosen}{count(judged, 'decision')}, {fused} to fuse")


def _reason(judgement: Judgement, gate: str | None) -> tuple[str, str]:
    """Code and message of the gate that was asked for, else of what vetoes, else of the gain that speaks for it."""
    if gate is not None:
        verdict: Verdict = getattr(judgement, gate)
    else:
        verdict = judgement.first if judgement.first is not None else judgement.gain
    return ("" if verdict.code == "F000" else verdict.code), verdict.message


def _record(d: Decision) -> dict[str, object]:
    from fusebound.plan.record import judgement_to_json

    return {
        "step": d.step,
        "a": d.a,
        "b": d.b,
        "operators": d.operators,
        "accepted": d.accepted,
        "judgement": judgement_to_json(d.judgement),
    }


def _rows(decisions: list[Decision]) -> Iterator[tuple[object, ...]]:
    yield ("step", "a", "b", "operators", "accepted", *GATES, "codes")
    for d in decisions:
        states = (getattr(d.judgement, g).state for g in GATES)
        yield (d.step, d.a, d.b, d.operators, d.accepted, *states, " ".join(d.judgement.codes))
