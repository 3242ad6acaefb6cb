"""The suite's figures for a person."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from bench.suite.contenders import MAKERS
from bench.suite.measure import ALLOCATING, Row
from fusebound.measure.statistics import geometric_mean

NOT_COUNTED = (
    "limit: of memory alone; kernels do not tell how many vector instructions their loops run, "
    "so that time is left out"
)


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """The figures that matter: against the best of `ALLOCATING`, losses to anybody, the share of the limit beyond the
    caches.

    Rows in which fusebound chose to run eagerly count like all others; a row without a figure is left out of its mean.
    """
    found: dict[str, float] = {"rows": len(rows)}
    for memory in ("reused", "held"):
        best = [r for row in rows if row.memory == memory and (r := row.against_best(ALLOCATING)) is not None]
        if best:
            found[f"speed-up over the best, {memory}, geomean"] = geometric_mean(best)
    found["rows behind the best"] = sum(bool(row.behind) for row in rows)
    found["rows run eagerly"] = sum("fused" in row.notes for row in rows)
    found["contenders absent, rows"] = sum(bool(row.absent) for row in rows)
    shares = [row.of_limit for row in rows if row.size == "dram" and row.of_limit is not None]
    if shares:
        found["share of the limit, dram, geomean"] = geometric_mean(shares)
        found["share of the limit, dram, least"] = min(shares)
    return found


def table(rows: Sequence[Row], memory: str) -> Table:
    """The rows of that memory: µs of each contender, the ratio to the best of the others, what there is to say."""
    made = Table(title=f"memory {memory}, one interleaved run a line (µs)")
    for heading in ("case", "size", "dtype"):
        made.add_column(heading, no_wrap=True)
    rows = [row for row in rows if row.memory == memory]
    names = [name for name in MAKERS if any(name in row.times for row in rows)]
    for heading in (*names, "limit", "over best", "of limit"):
        made.add_column(heading, justify="right", no_wrap=True)
    made.add_column("notes", ratio=1)
    for row in rows:
        best = row.against_best([name for name in names if name != "fused"])
        made.add_row(
            row.case, row.size, row.dtype,
            *(f"{row.times[name].us:.0f}" if name in row.times else "" for name in names),
            f"{row.limit.us:.0f}" if row.limit else "",
            f"{best:.2f}x" if best else "",
            f"{row.of_limit:.0%}" if row.of_limit else "",
            _notes(row),
        )  # fmt: skip
    return made


def _notes(row: Row) -> str:
    found = [f"behind {' '.join(row.behind)}"] if row.behind else []
    if "fused" in row.notes:
        found.append(f"eager: {row.notes['fused']}")
    found += [f"no {name}: {why}" for name, why in row.absent.items()]
    return "; ".join(found)
