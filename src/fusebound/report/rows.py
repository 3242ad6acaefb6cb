"""A report as rows of plain values, a header first: what CSV prints. Times are µs, sizes bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, fields

from fusebound.report.schema import Figures, Report

Row = tuple[object, ...]


def group_rows(report: Report) -> Iterator[Row]:
    """One row a group of the plan."""
    yield (
        "group", "kind", "operators", "launches_before", "launches_after", "bytes_before", "bytes_after",
        "eager_us", "predicted_us", "measured_us",
    )  # fmt: skip
    for g in report.groups:
        yield (
            g.id, g.kind, "; ".join(g.operators), g.launches_before, g.launches_after,
            g.bytes_before, g.bytes_after,
            round(g.eager_us, 3), round(g.predicted_us, 3), g.measured_us,
        )  # fmt: skip


def error_rows(report: Report) -> Iterator[Row]:
    """One row a checked output, then one a value that a kernel stores: fused and eager against float64, and apart."""
    gaps = ("fused", "eager", "apart")
    columns = (f"{g}_{f.name}" for g in gaps for f in fields(Figures))
    yield ("group", "output", "set", "ok", "verdict", *columns, "changes")
    for e in (*report.errors, *report.stored):
        figures = (x for g in (e.fused, e.eager, e.apart) for x in astuple(g))
        changes = "; ".join(f"{c.kind} {c.count}" for c in e.changes)
        yield (e.group, e.output, e.set, e.ok, e.verdict, *figures, changes)


def timing_rows(report: Report) -> Iterator[Row]:
    """One row a callable, then one a ratio, in the same columns: median and the middle half."""
    yield ("name", "memory", "unit", "median", "low", "high", "rounds")
    for t in report.timings:
        yield (t.name, t.memory, "us", t.median_us, t.low_us, t.high_us, t.rounds)
    for r in report.ratios:
        yield (f"speed-up over {r.baseline}", r.memory, "x", r.value, r.low, r.high, r.rounds)
