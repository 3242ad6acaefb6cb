"""The long search: `python -m tests.property.search --count 10000 --workers 2 [--start SEED] [--seeds 3,17]`.

Looks at consecutive seeds until so many have counted: those with a kernel of several operators. Every fifth seed is a
program of tensors (`programs`), which takes ten times as long as the graphs of primitives (`graphs`) of the others.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from typing import Any

import torch
from tests.property import judge, planned
from tests.property.draft import draw
from tests.property.judge import Found
from tests.property.programs import Program, smaller

EVERY = 5
"""One seed in so many is a program of tensors."""


def examined(seed: int) -> Found:
    """What became of one seed; an exception of fusebound's own is a fault, with its last frames."""
    return attempt(draw(seed)) if is_program(seed) else _guarded(planned.check, seed)


def is_program(seed: int) -> bool:
    return seed % EVERY == 0


def attempt(program: Program) -> Found:
    return _guarded(judge.check, program)


def _guarded(check: Callable[[Any], Found], what: Any) -> Found:
    try:
        return check(what)
    except Exception:
        return Found(fault="".join(traceback.format_exc().splitlines(True)[-7:]))


def kind(fault: str) -> str:
    """What a smaller program has to show to be the same failure."""
    return fault.strip().splitlines()[-1].split(":")[0][:12]


def shown(seed: int, found: Found) -> str:
    """The failure, and a program without the lines and outputs that it does not need."""
    if not is_program(seed):
        return f"seed {seed}: {found.fault}"
    return (
        f"{found.fault}\n{smaller(draw(seed), lambda p: kind(attempt(p).fault or '-') == kind(found.fault))}"
    )


def _shard(job: tuple[int, int, int]) -> tuple[int, Counter[str], list[tuple[int, Found]], int]:
    """Seeds start, start + step, … until `count` of them have counted: how many have, what became of the others, the
    failures, and the next seed."""
    start, step, count = job
    torch.set_num_threads(2)
    done, others, failed, seed = 0, Counter[str](), list[tuple[int, Found]](), start
    while done < count:
        found = examined(seed)
        done += not found.why
        others[found.why] += bool(found.why)
        if found.fault:
            failed.append((seed, found))
        seed += step
    return done, others, failed, seed


def search(
    start: int, count: int, workers: int
) -> Iterator[tuple[int, Counter[str], list[tuple[int, Found]], int]]:
    """Results of batches as they come; a worker takes every so many-th seed, so that the seeds are the same
    whatever the load."""
    batch = 100
    with get_context("spawn").Pool(workers, maxtasksperchild=10) as pool:
        jobs = [(start + w, workers, batch) for w in range(workers)]
        done = 0
        while done < count:
            results = pool.map(_shard, jobs, chunksize=1)
            jobs = [(r[3], workers, batch) for r in results]
            for r in results:
                done += r[0]
                yield r


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", default="", help="only these, comma-separated")
    a = parser.parse_args()
    begin, counted, failures, others, last = time.perf_counter(), 0, 0, Counter[str](), a.start
    if a.seeds:
        seeds = [int(s) for s in a.seeds.split(",")]
        results = iter(
            [(1, Counter[str](), [(s, f)] if (f := examined(s)).fault else [], s + 1) for s in seeds]
        )
    else:
        results = search(a.start, a.count, a.workers)
    for done, why, failed, seed in results:
        counted, last = counted + done, max(last, seed)
        others += why
        failures += len(failed)
        for s, f in failed:
            print(f"\nMISMATCH {shown(s, f)}", flush=True)
        print(
            f"{counted} counted, seeds from {a.start} to {last - 1}, {failures} mismatches, "
            f"{time.perf_counter() - begin:.0f} s; not counted: {dict(others)}",
            flush=True,
        )
    return bool(failures)


if __name__ == "__main__":
    raise SystemExit(main())
