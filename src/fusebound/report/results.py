"""What was checked and measured, added to a report of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fusebound.measure import statistics as measured
from fusebound.measure.bench import BenchResult
from fusebound.measure.statistics import Samples, quantile
from fusebound.report.schema import ClassChange, Culprit, Figures, OutputError, Phase, Ratio, Report, Timing
from fusebound.verify import bisect, result
from fusebound.verify.result import OutputCheck, VerifyResult
from fusebound.verify.shapes import ShapeCheck
from fusebound.words import count

BELIEVED = 2.0
"""A measured time further than this factor from the predicted one is pointed out."""


def with_verify(report: Report, found: VerifyResult, judged: str = "fused") -> Report:
    """Add the error of each output, on the set of values where it fared worst, and what else was checked; `judged` is
    whose outputs they are."""
    return replace(
        report,
        errors=tuple(_error(c) for c in found.outputs),
        stored=tuple(_error(c) for c in found.stored),
        origin=found.origin.group if found.origin else "",
        judged=judged,
        checks=_checks(found),
        ok=report.ok and found.ok,
    )


def _error(c: OutputCheck) -> OutputError:
    return OutputError(
        output=c.output,
        set=c.set,
        ok=c.ok,
        verdict=c.verdict,
        fused=_figures(c.fused),
        eager=_figures(c.eager),
        apart=_figures(c.apart),
        detail=c.detail,
        changes=tuple(ClassChange(x.kind, x.count, x.ok, x.example) for x in c.changes),
        group=c.group,
    )


def _figures(f: result.Figures) -> Figures:
    return Figures(f.rms, f.max, f.relative, f.ulps, f.max_ulps)


def _checks(found: VerifyResult) -> tuple[str, ...]:
    """One line each: how many checks on which values, determinism, what failed besides the outputs' errors (which have
    rows of their own), and what was left out."""
    lines = [found.counts, *(f"FAILED: {fault}" for fault in found.faults)]
    if found.deterministic is not None:
        lines.append("two runs give the same bits" if found.deterministic else "two runs differ")
    if found.threads is not None:
        lines.append(
            "independent of the thread count" if found.threads else "the thread count changes the result"
        )
    if found.skipped:
        lines.append(f"not begun for lack of time: {', '.join(found.skipped)}")
    if found.unjudged:
        lines.append(f"not judged: {_by_reason(found.unjudged)}")
    if found.origin is not None:
        where = found.origin
        lines.append(
            f"the error on {where.set!r} arises in group {where.group}, at {where.output}: {where.detail}"
        )
    lines += [f"eager raises, and so does the program: {text}" for text in found.raised]
    return (*lines, *found.notes)


def _by_reason(unjudged: Sequence[tuple[str, str]]) -> str:
    """Sets that share a reason, then the reason."""
    sets: dict[str, list[str]] = {}
    for name, why in unjudged:
        sets.setdefault(why, []).append(name)
    return "; ".join(f"{', '.join(names)} ({why})" for why, names in sets.items())


def with_culprit(report: Report, found: bisect.Culprit, script: str) -> Report:
    """Add what a bisection ended with; `script` is the file of its reproduction."""
    failures = found.found.failures
    verdict = f"{failures[0].verdict}: {failures[0].detail}" if failures else "; ".join(found.found.faults)
    culprit = Culprit(
        place=found.place,
        set=found.set,
        groups=found.groups,
        operators=tuple(u.label for u in found.operators),
        edges=tuple(f"{a} → {b}" for a, b in found.edges),
        shapes=tuple(str(list(getattr(a, "shape", ()))) for a in found.args),
        verdict=verdict,
        script=script,
    )
    return replace(report, culprit=culprit)


def with_shapes(report: Report, found: Sequence[ShapeCheck]) -> Report:
    """Add what came of the boundary shapes and layouts: one line, and one for each that failed."""
    checked = [c for c in found if c.result is not None]
    refused = [c.variant for c in found if c.result is None]
    number = count(len(checked), "boundary shape or layout", "boundary shapes and layouts")
    lines = [f"{number}: {', '.join(c.variant for c in checked)}"]
    if refused:
        lines.append(f"refused by eager too: {', '.join(refused)}")
    lines += [
        f"FAILED at {c.variant}: {c.result.summary()}" for c in checked if c.result is not None and not c.ok
    ]
    return replace(report, checks=(*report.checks, *lines), ok=report.ok and all(c.ok for c in found))


def with_bench(report: Report, found: BenchResult) -> Report:
    """Add times, speed-ups and the time of each group's own step."""
    steps = dict(found.kernels)
    timings = [_timing(found.fused, "reused"), *(_timing(o.times, "reused") for o in found.opponents)]
    ratios = [_ratio(o.name, "reused", o.speedup) for o in found.opponents]
    if found.fused_held is not None:
        timings.append(_timing(found.fused_held, "held"))
    for o in found.opponents:
        if o.held is not None and o.held_times is not None:
            timings.append(_timing(o.held_times, "held"))
            ratios.append(_ratio(o.name, "held", o.held))
    groups = tuple(replace(g, measured_us=steps.get(g.id)) for g in report.groups)
    return replace(
        report,
        groups=groups,
        timings=tuple(timings),
        ratios=tuple(ratios),
        warnings=(*found.warnings, *_disbelieved(replace(report, groups=groups), found.fused.median)),
        slower=found.slower,
    )


def _disbelieved(report: Report, measured_us: float) -> Iterator[str]:
    """A prediction that the measurement belies by a factor of `BELIEVED`, and the group that most of it is due to."""
    predicted = report.predicted_us
    if not predicted or 1 / BELIEVED <= measured_us / predicted <= BELIEVED:
        return
    apart = [(abs(g.measured_us - g.predicted_us), g) for g in report.groups if g.measured_us is not None]
    worst = max(apart, key=lambda pair: pair[0], default=(0.0, None))[1]
    blame = ""
    if worst is not None and worst.measured_us is not None and worst.predicted_us:
        name = f"kernel {worst.id}" if worst.kind == "kernel" else f"eager's {worst.operators[0]}"
        blame = f"; {name} took {worst.measured_us / worst.predicted_us:.1f}x its prediction"
    yield f"the program took {measured_us / predicted:.1f}x the time predicted for {report.target}{blame}"


def _timing(s: Samples, memory: str) -> Timing:
    low, high = quantile(s.times_us, 0.25), quantile(s.times_us, 0.75)
    return Timing(s.name, memory, s.median, low, high, len(s.times_us))


def _ratio(baseline: str, memory: str, r: measured.Ratio) -> Ratio:
    return Ratio(baseline, memory, r.value, r.low, r.high, r.rounds)


def with_phases(report: Report, seconds: Mapping[str, float], environment: Mapping[str, object]) -> Report:
    """Add how long each phase took, and where."""
    phases = tuple(Phase(name, taken) for name, taken in seconds.items())
    return replace(report, phases=phases, environment={k: str(v) for k, v in environment.items()})
