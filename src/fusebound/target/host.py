"""The target `host`: this machine's calibration record, else the nearest table marked uncalibrated."""

from __future__ import annotations

import os
from dataclasses import replace

from fusebound.settings import current
from fusebound.target.load import load_table
from fusebound.target.machine import Machine, this_machine
from fusebound.target.record import read_record
from fusebound.target.target import Target
from fusebound.words import count


def host() -> Target:
    """This machine. Measured figures where `fusebound hardware calibrate` has run, estimates otherwise.

    A record taken with another number of threads than FB_THREADS asks for is scaled.
    """
    record = read_record()
    if record is None:
        return estimate(this_machine())
    threads = current().threads
    if threads in (0, record.target.threads):
        return record.target
    return replace(
        scaled(record.target, threads),
        source=f"{record.target.source}, scaled to {count(threads, 'thread')}",
    )


def default_threads(machine: Machine) -> int:
    """Threads that kernels use: FB_THREADS, else OMP_NUM_THREADS, else one per physical core."""
    chosen = current().threads
    if chosen:
        return chosen
    openmp = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if openmp.isdigit() and int(openmp) > 0:
        return int(openmp)
    return max(machine.cores // machine.threads_per_core, 1)


def estimate(machine: Machine, threads: int | None = None) -> Target:
    """The nearest table with this machine's own cores and caches; throughput scales with the threads."""
    table = load_table(machine.table)
    used = threads or default_threads(machine)
    return replace(
        scaled(table, used),
        name="host",
        source=f"estimated from {table.name} for {machine.model}, {count(used, 'thread')}; not calibrated",
        l1_bytes=machine.l1_bytes or table.l1_bytes,
        l2_bytes=machine.l2_bytes or table.l2_bytes,
        l3_bytes=machine.l3_bytes or table.l3_bytes,
    )


def scaled(target: Target, threads: int) -> Target:
    """The target with another number of threads: private caches and arithmetic in proportion, memory by the
    root, since a few cores draw more than their share of it, yet not all."""
    share = threads / target.threads
    return replace(
        target,
        threads=threads,
        l2_bandwidth=target.l2_bandwidth * share,
        l3_bandwidth=target.l3_bandwidth * share,
        dram_bandwidth=target.dram_bandwidth * share**0.5,
        flops=target.flops * share,
    )
