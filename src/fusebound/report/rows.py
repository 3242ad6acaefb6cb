"""A report as rows of plain values, a header first: what CSV prints. Times are µs, sizes bytes."""

from __future__ import annotations

from collections.abc import Iterator

from fusebound.report.schema import Report

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
    """One row a checked output: errors against float64, fused and eager."""
    yield ("output", "set", "ok", "verdict", "fused_rms", "eager_rms", "fused_max", "eager_max")
    for e in report.errors:
        yield (e.output, e.set, e.ok, e.verdict, e.fused_rms, e.eager_rms, e.fused_max, e.eager_max)


def timing_rows(report: Report) -> Iterator[Row]:
    """One row a callable, then one a ratio, in the same columns: median and the middle half."""
    yield ("name", "memory", "unit", "median", "low", "high", "rounds")
    for t in report.timings:
        yield (t.name, t.memory, "us", t.median_us, t.low_us, t.high_us, t.rounds)
    for r in report.ratios:
        yield (f"speed-up over {r.baseline}", r.memory, "x", r.value, r.low, r.high, r.rounds)
