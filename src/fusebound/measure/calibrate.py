"""Measures this machine's figures for the cost model and stores them as the record behind `host`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache

import torch

from fusebound.measure.costs import (
    compile_samples,
    dispatch_call,
    fresh_call,
    launch_call,
    reused_call,
    with_threads,
)
from fusebound.measure.environment import busy, versions
from fusebound.measure.probes import CHAINS, Probe, Probes, aligned, probes
from fusebound.measure.statistics import Samples
from fusebound.measure.timer import interleave
from fusebound.target.host import estimate
from fusebound.target.machine import this_machine
from fusebound.target.record import Record, write_record
from fusebound.target.target import Target
from fusebound.words import count

_FRESH_BYTES = 64 << 20
"""Above every allocator's threshold for returning memory to the system at once."""

_MATRIX = 1024
"""Rows of the square float32 matrix that is read with a stride: 4 MB, in L3 and beyond L2."""


_QUICK, _FULL = 40, 400
"""Rounds. Capabilities are taken from the fastest tenth, so that other work on the machine does not show."""

_NOISY = 0.5
"""Spread of a figure above which it is doubted."""


_CROWDED = 20
"""A parallel region that takes this many times the usual has waited for a core that other work holds."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure with its spread (interquartile range over median)."""

    value: float
    spread: float


def calibrate(quick: bool = False) -> Record:
    """Measure this machine, store the record in the cache directory and return it.

    A few seconds with `quick`, below a minute without. Bandwidths count bytes read plus written, all threads.
    """
    record = measure_record(quick)
    write_record(record)
    return record


def measure_record(quick: bool) -> Record:
    """The record of this machine, measured now and not stored."""
    load = busy()
    rounds = _QUICK if quick else _FULL
    machine = this_machine()
    base = estimate(machine, torch.get_num_threads())
    figures = _overheads(base, rounds)
    figures["compile_us"] = _compile(base, rounds)
    rates, crowded = _throughput(base, rounds)
    figures |= _ordered(rates)
    doubts = tuple(_doubts(figures, crowded, load))
    facts = ("quick" if quick else "full", count(rounds, "round"), count(base.threads, "thread"))
    target = replace(
        base,
        source=f"calibrated ({', '.join((*facts, *(['doubtful'] if doubts else [])))})",
        calibrated=True,
        **{name: f.value for name, f in figures.items()},
    )
    return Record(
        target=target,
        fingerprint=machine.fingerprint,
        model=machine.model,
        cores=machine.cores,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        mode="quick" if quick else "full",
        runs=rounds,
        versions=tuple(versions().items()),
        spread=tuple((name, round(f.spread, 4)) for name, f in figures.items()),
        doubts=doubts,
    )


def _doubts(figures: dict[str, Figure], crowded: bool, load: float | None) -> Iterator[str]:
    """What speaks against the figures; `load` is the load average of a machine that was busy before."""
    if load is not None:
        yield f"load average {load:.1f} on {count(this_machine().cores, 'core')} at the start: other work ran beside"
    if crowded:
        yield "other work kept the cores busy: measured on one thread and scaled"
    noisy = [f"{name} {f.spread:.0%}" for name, f in figures.items() if f.spread > _NOISY]
    if noisy:
        yield f"spread above {_NOISY:.0%} of the median: {', '.join(noisy)}"


def _throughput(base: Target, rounds: int) -> tuple[dict[str, Figure], bool]:
    """Copy bandwidth by memory level, the strided share of it, vector multiply-adds, fresh memory.

    Each is measured with all threads and with one. Where all do less than one (other work holds the cores,
    and a parallel region waits for them), one thread's figure is scaled; the flag says that this happened.
    """
    many = {f"{name} of all": work for name, work in _work(base, base.threads).items()}
    one = {f"{name} of one": work for name, work in _work(base, 1).items()}
    work = many | one
    samples = interleave(
        {name: call for name, (call, _) in work.items()}, rounds=rounds, warmup=1, budget_s=rounds / 16
    )
    rates = {name: _rate(samples[name], amount) for name, (_, amount) in work.items()}
    crowded = False
    figures: dict[str, Figure] = {}
    for name in _work(base, 1):
        together, alone = rates[f"{name} of all"], rates[f"{name} of one"]
        if together.value < alone.value:
            crowded = True
            together = Figure(alone.value * _scale(name, base.threads), alone.spread)
        figures[name] = together
    strided, streaming = figures.pop("strided"), figures.pop("streaming")
    figures["strided_fraction"] = Figure(
        min(strided.value / streaming.value, 1.0), strided.spread + streaming.spread
    )
    fresh, reused = figures.pop("fresh"), figures.pop("reused")
    extra = max(1 / fresh.value - 1 / reused.value, 0.0)
    figures["page_fault_us"] = Figure(extra * 1e6, fresh.spread)
    return figures, crowded


def _ordered(figures: dict[str, Figure]) -> dict[str, Figure]:
    """No level is slower than the one behind it, whatever noise says."""
    made = dict(figures)
    for near, far in (("l3_bandwidth", "dram_bandwidth"), ("l2_bandwidth", "l3_bandwidth")):
        if made[near].value < made[far].value:
            made[near] = replace(made[near], value=made[far].value)
    return made


def _scale(name: str, threads: int) -> float:
    """Private resources grow with the threads, shared ones with the root, as in `target.host.estimate`."""
    private = ("l2_bandwidth", "l3_bandwidth", "flops", "strided", "streaming")
    return float(threads) if name in private else threads**0.5


def _work(base: Target, threads: int) -> dict[str, tuple[Callable[[], object], float]]:
    """What is timed: the call, and how many bytes (or vector instructions) it moves."""
    loops = probes()
    sizes = _sizes(base, loops, threads)
    source, target = _buffers(max(sizes.values()))
    a, b = source.data_ptr(), target.data_ptr()

    def copy(probe: Probe, nbytes: int) -> tuple[Callable[[], object], float]:
        repeats = max((32 << 20) // nbytes, 1)  # what was measured before has emptied the caches
        vectors = nbytes // loops.vector_bytes
        return (lambda: probe.run(a, b, vectors, repeats, threads)), 2.0 * nbytes * repeats

    steps = (1 << 13) * threads
    matrix = _MATRIX * _MATRIX * 4
    return {
        "l2_bandwidth": copy(loops.copy, sizes["l2"]),
        "l3_bandwidth": copy(loops.copy, sizes["l3"]),
        "dram_bandwidth": copy(loops.stream, sizes["dram"]),
        "strided": ((lambda: loops.strided.run(a, b, _MATRIX, 1, threads)), 2.0 * matrix),
        "streaming": copy(loops.copy, matrix),
        "flops": ((lambda: loops.arithmetic.run(a, b, steps, 1, threads)), float(CHAINS * steps)),
        "fresh": (with_threads(fresh_call(_FRESH_BYTES), threads), float(_FRESH_BYTES)),
        "reused": (with_threads(reused_call(_FRESH_BYTES), threads), float(_FRESH_BYTES)),
    }


@cache
def _buffers(nbytes: int) -> tuple[torch.Tensor, torch.Tensor]:
    return aligned(nbytes), aligned(nbytes)


def _sizes(base: Target, loops: Probes, threads: int) -> dict[str, int]:
    """Bytes of one side of a copy: both sides fill half of L2, a quarter of L3, all caches twice."""
    step = 64 * loops.vector_bytes * base.threads
    caches = base.l3_bytes + base.l2_bytes * base.threads
    wanted = {
        "l2": base.l2_bytes * threads // 4,
        "l3": max(base.l3_bytes // 8, base.l2_bytes * threads),
        "dram": min(max(caches, 32 << 20), 256 << 20),
    }
    return {level: max(n // step, 1) * step for level, n in wanted.items()}


def _rate(samples: Samples, amount: float) -> Figure:
    """Amount per µs."""
    return Figure(amount / samples.best, samples.spread)


def _overheads(base: Target, rounds: int) -> dict[str, Figure]:
    """µs to call a kernel, to dispatch an eager operator, to enter and leave a parallel region."""
    nothing, threads = probes().nothing, max(base.threads, 2)
    calls = {
        "launch_us": launch_call(base),
        "framework_us": dispatch_call(),
        "serial": lambda: nothing.run(0, 0, 0, 0, 1),
        "parallel": lambda: nothing.run(0, 0, 0, 0, threads),
    }
    times = interleave(calls, rounds=rounds)
    fork = max(times["parallel"].best - times["serial"].best, 0.1)
    if fork > _CROWDED * base.fork_us:
        fork = base.fork_us
    return {
        "launch_us": Figure(times["launch_us"].median, times["launch_us"].spread),
        "framework_us": Figure(times["framework_us"].median, times["framework_us"].spread),
        "fork_us": Figure(fork, times["parallel"].spread),
    }


def _compile(base: Target, rounds: int) -> Figure:
    """µs to generate and compile a kernel, beyond those of its primitives."""
    times = compile_samples(base, rounds // 8)
    return Figure(statistics.median(times), Samples("compile", tuple(times)).spread)
