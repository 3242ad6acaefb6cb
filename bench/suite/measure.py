"""Rows: one case at one size in one dtype, all contenders in one interleaved run."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from bench.suite.case import Arguments, Case
from bench.suite.contenders import Contender, eager, ready
from bench.suite.limit import copies, least_traffic
from fusebound.measure.bench import is_slower
from fusebound.measure.statistics import Ratio, Samples, ratio
from fusebound.measure.timer import interleave
from fusebound.runtime.pool import pool

SIZES = {"l2": 1 << 18, "l3": 1 << 22, "dram": 1 << 26}
"""Bytes of a case's largest tensor, rounded up to two rows: inside L2, inside L3, and beyond both."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

ALLOCATING = ("eager", "inductor", "xla")
"""Whom a geometric mean is taken against: those who look after their results' memory as a user has it."""

HELD = 3_000_000_000
"""Bytes of results that the held runs keep between two rounds."""

SAMPLE_US, PAUSE_S = 1000.0, 0.005
"""What a sample lasts at least, and the pause before it: threads of OpenMP spin for milliseconds after a region, and
would take XLA's cores. The samples are long enough for waking threads not to count."""


@dataclass(frozen=True, slots=True)
class Time:
    """Median in µs; spread is the interquartile range over it."""

    us: float
    spread: float


@dataclass(frozen=True, slots=True)
class Row:
    """`memory` is "reused" (results dropped at once) or "held" (all kept alive, every call writes fresh memory).

    `ratios` are the other contenders' times over the fused one; `behind` are those that are faster beyond doubt.
    `limit` is the time of `traffic` bytes, None where memory is held. `notes` are what contenders say about
    themselves ("fused": why it runs eagerly), `absent` why one has no time.
    """

    case: str
    size: str
    dtype: str
    memory: str
    traffic: int
    times: Mapping[str, Time]
    ratios: Mapping[str, Ratio]
    behind: tuple[str, ...]
    limit: Time | None
    of_limit: float | None
    notes: Mapping[str, str]
    absent: Mapping[str, str]
    warnings: tuple[str, ...]

    def against_best(self, names: Sequence[str]) -> float | None:
        """The time of the fastest of `names` over the fused one; None where none has a time."""
        best = [name for name in names if name in self.times]
        if "fused" not in self.times or not best:
            return None
        return self.ratios[min(best, key=lambda n: self.times[n].us)].value


def measure(case: Case, size: str, dtype: str, names: Sequence[str], rounds: int) -> list[Row]:
    """The rows of a case: memory reused, and held where the case returns something.

    A contender that fails, or whose numbers are not eager's, is left out, and the row says why.
    """
    # What the row before held goes first: a replay is a cycle of references.
    gc.collect()
    pool.trim()
    with torch.no_grad():
        args = case.arguments(SIZES[size], DTYPES[dtype])
        made, absent = _prepared(case, args, names)
        results = eager(case, args).call()
        beside = copies(least_traffic(case, args, results))
        returns = any(isinstance(r, torch.Tensor) for r in pytree.tree_leaves(results))
        del results
        calls = {name: m.call for name, m in made.items()}
        reused = _run(calls | beside.calls, rounds)
        held = _run({n: c for n, c in calls.items() if n != "into"}, rounds, hold=True) if returns else {}
    limit = beside.limit(reused)
    fields = {
        "case": case.name, "size": size, "dtype": dtype, "traffic": beside.traffic, "absent": absent,
        "notes": {name: note for name, m in made.items() if (note := m.note())},
    }  # fmt: skip
    rows = [Row(memory="reused", **fields, **_figures({n: reused[n] for n in made}, limit))]
    if held:
        rows.append(Row(memory="held", **fields, **_figures(held, None)))
    return rows


def _prepared(
    case: Case, args: Arguments, names: Sequence[str]
) -> tuple[dict[str, Contender], dict[str, str]]:
    """Contenders that are ready, and why the others are not."""
    made: dict[str, Contender] = {}
    absent: dict[str, str] = {}
    for name in names:
        # A compiler may fail in any way; the others are measured all the same.
        try:
            made[name] = ready(name, case, args)
        except Exception as error:
            absent[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return made, absent


def _run(calls: Mapping[str, Callable[[], object]], rounds: int, *, hold: bool = False) -> dict[str, Samples]:
    return interleave(
        calls, rounds=rounds, min_sample_us=SAMPLE_US, pause_s=PAUSE_S, hold=hold, hold_bytes=HELD
    )


def _figures(times: Mapping[str, Samples], limit: Samples | None) -> dict[str, Any]:
    """The fields of a row that come from samples of one run."""
    fused = times.get("fused")
    others = {name: s for name, s in times.items() if fused and name != "fused"}
    ratios = {name: ratio(s, fused) for name, s in others.items() if fused}
    return {
        "times": {name: _time(s) for name, s in times.items()},
        "ratios": ratios,
        "behind": tuple(n for n, s in others.items() if fused and is_slower(fused, s) and ratios[n].high < 1),
        "limit": _time(limit) if limit else None,
        "of_limit": ratio(limit, fused).value if limit and fused else None,
        "warnings": tuple(w for s in (*times.values(), *([limit] if limit else [])) for w in s.warnings),
    }


def _time(samples: Samples) -> Time:
    return Time(samples.median, samples.spread)
