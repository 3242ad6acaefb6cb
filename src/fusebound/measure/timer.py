"""Times callables in one interleaved run: every round calls all of them, in an order that alternates.

Absolute times drift on most machines; figures of one round are taken within milliseconds of each other, so
their ratios hold.
"""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import repeat
from typing import Any

from torch.utils import _pytree as pytree

from fusebound.measure.statistics import Samples
from fusebound.runtime.pool import pool

Call = Callable[[], object]

MIN_SAMPLE_US = 50.0
"""Shorter calls are repeated until a sample takes this long, so that the clock's own cost does not show."""

_LEAST_ROUNDS = 3
_MAX_BATCH = 20_000


def interleave(
    callables: Mapping[str, Call],
    *,
    rounds: int = 15,
    warmup: int = 3,
    min_sample_us: float = MIN_SAMPLE_US,
    hold: bool = False,
    hold_bytes: int = 0,
    budget_s: float = math.inf,
    before: Call | None = None,
    pause_s: float = 0.0,
) -> dict[str, Samples]:
    """Microseconds per call of each callable, one figure a round, garbage collection off.

    Results are dropped at once, so that memory may be reused. With `hold` all results stay alive until the
    end (or until they exceed `hold_bytes`, by default a quarter of the free memory, and are dropped between
    two rounds), so that every call has to write fresh memory. After `budget_s` seconds no further round
    begins, but there are at least three if asked for. `before` runs ahead of every sample, outside the time
    taken, and a sample is then a single call. `pause_s` is slept ahead of every sample, so that idle threads of another
    contender's pool no longer spin. Raises ValueError for no callables or rounds.
    """
    if not callables or rounds < 1:
        raise ValueError("interleave needs at least one callable and one round")
    with _quiet_collector():
        batches = {
            name: 1 if before else _batch(call, warmup, min_sample_us) for name, call in callables.items()
        }
        keeper = _Keeper(hold_bytes or _free_memory() // 4) if hold else None
        times: dict[str, list[float]] = {name: [] for name in callables}
        deadline = time.perf_counter() + budget_s
        for number in range(rounds):
            if number >= _LEAST_ROUNDS and time.perf_counter() > deadline:
                break
            for name in _order(list(callables), number):
                if before:
                    before()
                if pause_s:
                    time.sleep(pause_s)
                times[name].append(_sample(callables[name], batches[name], keeper))
            if keeper:
                keeper.between_rounds()
    return {name: Samples(name, tuple(times[name]), batches[name]) for name in callables}


def _order(names: list[str], number: int) -> list[str]:
    """Rotated by the round, and backwards every second time: nobody always follows the same neighbour."""
    shift = (number // 2) % len(names)
    order = names[shift:] + names[:shift]
    return order if number % 2 == 0 else order[::-1]


@contextmanager
def _quiet_collector() -> Iterator[None]:
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _batch(call: Call, warmup: int, min_sample_us: float) -> int:
    """Warm up, and find how many calls a sample needs."""
    for _ in range(warmup):
        call()
    count = 1
    while True:
        took = min(_timed(call, count) for _ in range(3))
        if took >= min_sample_us or count >= _MAX_BATCH:
            return count
        count = min(max(2 * count, math.ceil(count * 1.2 * min_sample_us / max(took, 0.1))), _MAX_BATCH)


def _timed(call: Call, count: int) -> float:
    """Microseconds of `count` calls."""
    start = time.perf_counter_ns()
    for _ in repeat(None, count):
        call()
    return (time.perf_counter_ns() - start) / 1000


def _sample(call: Call, count: int, keeper: _Keeper | None) -> float:
    if keeper is None:
        return _timed(call, count) / count
    kept: list[object] = []
    keep = kept.append
    start = time.perf_counter_ns()
    for _ in repeat(None, count):
        keep(call())
    took = (time.perf_counter_ns() - start) / 1000
    keeper.hold(kept)
    return took / count


class _Keeper:
    """Holds results alive, up to a number of bytes. Pooled blocks that are free would not be fresh: they go."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: list[object] = []
        self._bytes = 0
        pool.trim()

    def hold(self, results: list[object]) -> None:
        self._held.extend(results)
        self._bytes += sum(_nbytes(r) for r in results)

    def between_rounds(self) -> None:
        """Drop everything once it is too much."""
        if self._bytes > self._limit:
            self._held.clear()
            self._bytes = 0
            pool.trim()


def _nbytes(result: object) -> int:
    leaves: list[Any] = pytree.tree_leaves(result)
    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in leaves)


def _free_memory() -> int:
    """Bytes that can be taken without swapping; 4 GB where the system does not say."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 1 << 32
