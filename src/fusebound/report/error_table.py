"""Errors as tables: a line an output beside the times of `run`, and all three comparisons in `verify`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from fusebound.report import units
from fusebound.report.layout import labelled, plain_table
from fusebound.report.schema import Culprit, Figures, OutputError, Report
from fusebound.words import count

ERRORS_SHOWN = 6


def errors(report: Report) -> Table:
    """Error of each output against float64, fused beside eager."""
    table = plain_table(
        ("error against fp64", "left"),
        ("rms fused", "right"),
        ("eager", "right"),
        ("max fused", "right"),
        ("eager", "right"),
        ("verdict", "left"),
    )
    shown, hidden = _chosen(report.errors)
    for e in shown:
        figures = (e.fused.rms, e.eager.rms, e.fused.max, e.eager.max)
        table.add_row(e.output, *(units.error(x) for x in figures), _verdict(e), style=_style(e))
    _count_hidden(table, hidden, 4)
    return table


def three_ways(report: Report) -> Table:
    """Each output three ways, what was judged and eager against float64 and one another, in every unit."""
    table = plain_table(
        ("output", "left"),
        ("of", "whole"),
        ("rms", "right"),
        ("max", "right"),
        ("relative", "right"),
        ("ULP", "right"),
        ("max ULP", "right"),
        ("verdict", "left"),
    )
    shown, hidden = _chosen(report.errors)
    for e in shown:
        table.add_row(e.output, f"{report.judged} − fp64", *_cells(e.fused), _verdict(e), style=_style(e))
        table.add_row("", "eager − fp64", *_cells(e.eager), _changes(e), style=_style(e))
        table.add_row("", f"{report.judged} − eager", *_cells(e.apart), "", style=_style(e))
    _count_hidden(table, hidden, 6)
    return table


def stored(report: Report) -> Table:
    """A line for each value that a kernel stores, in the plan's order."""
    table = plain_table(
        ("group", "whole"),
        ("stores", "left"),
        ("rms fused", "right"),
        ("eager", "right"),
        ("ULP fused", "right"),
        ("eager", "right"),
        ("apart", "right"),
        ("verdict", "left"),
    )
    for e in report.stored:
        figures = (e.fused.rms, e.eager.rms, e.fused.ulps, e.eager.ulps, e.apart.ulps)
        table.add_row(e.group, e.output, *(units.error(x) for x in figures), _verdict(e), style=_style(e))
    return table


def culprit(found: Culprit) -> Table:
    """What a bisection ended with, a line each."""
    alone = found.script or "the operators alone are right: the fault lies in how the program runs them"
    lines = [
        ("culprit", found.place),
        ("found on", f"{found.set} values, group {', '.join(found.groups)}" if found.groups else found.set),
        ("differs", found.verdict),
        ("input", ", ".join(found.shapes)),
        ("script", alone),
    ]
    return labelled((label, text) for label, text in lines if text)


def _cells(f: Figures) -> tuple[str, ...]:
    return tuple(units.error(x) for x in (f.rms, f.max, f.relative, f.ulps, f.max_ulps))


def _verdict(e: OutputError) -> str:
    return e.verdict if e.ok else f"FAILED on {e.set}: {e.verdict}; {e.detail}"


def _changes(e: OutputError) -> str:
    """Elements of another class than eager's that are allowed; a forbidden one is the verdict."""
    return "; ".join(f"{c.kind}: {count(c.count, 'element')}" for c in e.changes if c.ok)


def _style(e: OutputError) -> str:
    return "" if e.ok else "bold red"


def _chosen(found: Sequence[OutputError]) -> tuple[Sequence[OutputError], Sequence[OutputError]]:
    """What is shown, those nearest to a failure in the order of the outputs, and what is not."""
    worst = sorted(range(len(found)), key=lambda i: (found[i].ok, -_excess(found[i])))[:ERRORS_SHOWN]
    shown, hidden = sorted(worst), sorted({*range(len(found))} - {*worst})
    return [found[i] for i in shown], [found[i] for i in hidden]


def _excess(e: OutputError) -> float:
    return e.fused.rms / e.eager.rms if e.eager.rms else float(e.fused.rms > 0)


def _count_hidden(table: Table, hidden: Sequence[OutputError], figures: int) -> None:
    if hidden:
        best = dict.fromkeys(e.verdict for e in hidden)
        table.add_row(f"… {len(hidden)} more", *("",) * figures, " or ".join(best), style="dim")
