"""The target `host`: this machine's calibration record, else the nearest table marked uncalibrated."""

from __future__ import annotations

import os
from dataclasses import replace

from fusebound.settings import current
from fusebound.target.load import load_table
from fusebound.target.machine import Machine, this_machine
from fusebound.target.record import read_record
from fusebound.target.target import Target


def host() -> Target:
    """This machine. Measured figures where `fusebound hardware calibrate` has run, estimates otherwise."""
    record = read_record()
    return record.target if record else estimate(this_machine())


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
    share = used / table.threads
    return replace(
        table,
        name="host",
        source=f"estimated from {table.name} for {machine.model}, {used} threads; not calibrated",
        threads=used,
        l1_bytes=machine.l1_bytes or table.l1_bytes,
        l2_bytes=machine.l2_bytes or table.l2_bytes,
        l3_bytes=machine.l3_bytes or table.l3_bytes,
        l2_bandwidth=table.l2_bandwidth * share,
        l3_bandwidth=table.l3_bandwidth * share,
        # A few cores cannot draw what a whole complex can, yet draw more than their share of it.
        dram_bandwidth=table.dram_bandwidth * share**0.5,
        flops=table.flops * share,
    )
