"""The time that memory alone asks for: the least traffic of a case at the speed of a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree

from bench.suite.case import Arguments, Case
from fusebound.measure.probes import Probe, aligned, probes
from fusebound.measure.statistics import Samples
from fusebound.target.machine import this_machine

_SAMPLE = 8 << 20
"""Bytes that one call moves at least: small copies are repeated, so that entering a parallel region does not count."""

_UNROLL = 4


def least_traffic(case: Case, args: Arguments, results: object) -> int:
    """Bytes read and written by any way to compute `results`: inputs and results once each.

    What is written in place counts twice, and so does an input in `case.twice` that exceeds the last-level cache.
    """
    cache = this_machine().l3_bytes
    total = sum(t.nbytes for t in pytree.tree_leaves(results) if isinstance(t, torch.Tensor))
    for i, a in enumerate(args):
        if isinstance(a, torch.Tensor):
            again = i in case.written or (i in case.twice and a.nbytes > cache)
            total += a.nbytes * (1 + again)
    return total


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies by plain and by non-temporal stores, half of `traffic` to read and half to write, on all threads."""

    traffic: int
    calls: dict[str, Callable[[], object]]
    _moved: int

    def limit(self, times: dict[str, Samples]) -> Samples:
        """µs for the traffic by the faster of the copies, from the run in which they were timed."""
        best = min((times[name] for name in self.calls), key=lambda s: s.median)
        scale = self.traffic / self._moved
        return Samples("limit", tuple(t * scale for t in best.times_us), best.batch)


def copies(traffic: int) -> Copies:
    """The copies to time beside a case that moves `traffic` bytes."""
    loops = probes()
    threads = torch.get_num_threads()
    grain = threads * _UNROLL
    vectors = max(traffic // 2 // loops.vector_bytes // grain, 1) * grain
    nbytes = vectors * loops.vector_bytes
    repeats = max(_SAMPLE // (2 * nbytes), 1)
    source, target = aligned(nbytes), aligned(nbytes)

    def call(loop: Probe) -> Callable[[], object]:
        return lambda: loop.run(source.data_ptr(), target.data_ptr(), vectors, repeats, threads)

    calls = {"copy": call(loops.copy), "stream": call(loops.stream)}
    return Copies(traffic, calls, 2 * nbytes * repeats)
