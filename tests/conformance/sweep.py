"""All of `op_db` (`make conformance`): `python -m tests.conformance.sweep [--jobs N] [operator ...]`.

Prints a line for every operator that has a kernel, with its samples over all types and variants, then what
differs from eager; on stderr how far it is. An operator none of whose `PROBES` samples gets a kernel in a type is left
to the framework.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import connection, get_context, parent_process
from threading import Thread

import torch
from tests.conformance.errors import check_errors
from tests.conformance.opinfo import DTYPES, Case, Outcome, cases, check, operators, variants

PROBES = 8


@dataclass
class Row:
    """What the samples of one operator gave: their number, those in kernels, and why the others are not."""

    name: str
    samples: int = 0
    kernels: int = 0
    apart: Counter[str] = field(default_factory=Counter[str])
    errors: int = 0
    faults: list[str] = field(default_factory=list[str])

    def add(self, found: list[Outcome]) -> None:
        self.samples += len(found)
        self.kernels += sum(not o.why for o in found)
        self.apart.update(o.why for o in found if o.why)
        self.faults += [f"{o.case}: {o.fault}" for o in found if o.fault]

    def __str__(self) -> str:
        apart = ", ".join(f"{why} {n}" for why, n in sorted(self.apart.items()))
        counts = f"{self.samples:8} {self.kernels:8} {self.errors:7} {len(self.faults):7}"
        return f"{self.name:50} {counts}  {apart}"


def swept(found: list[Case]) -> list[Outcome]:
    """The outcomes of all cases, or of the probes if no kernel holds one of them."""
    probes = found[:: max(len(found) // PROBES, 1)][:PROBES]
    outcomes = check(probes)
    if all(o.why for o in outcomes):
        return outcomes
    return outcomes + check([c for c in found if c not in probes])


def sweep(name: str) -> Row:
    """One operator over its types and variants, and its error inputs."""
    op = operators()[name]
    row = Row(name)
    for dtype in DTYPES:
        if dtype in op.dtypes:
            for variant in variants(op):
                row.add(swept(cases(op, dtype, variant)))
    if row.kernels:
        row.errors, wrong = check_errors(op)
        row.faults += wrong
    return row


def main(names: list[str], jobs: int) -> int:
    """Sweep the named operators, or all, in `jobs` processes; returns 1 where something differs from eager."""
    chosen = [full for full, op in operators().items() if not names or {full, op.name} & set(names)]
    rows: list[Row] = []
    began = time.monotonic()
    print(f"{'operator':50} {'samples':>8} {'kernels':>8} {'errors':>7} {'differ':>7}  not in a kernel")
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_alone) as pool:
        for done, found in enumerate(as_completed([pool.submit(sweep, name) for name in chosen]), 1):
            row = found.result()
            if row.kernels or row.faults:
                rows.append(row)
                print(row, *(f"    {fault}" for fault in row.faults), sep="\n", flush=True)
            print(f"{done} of {len(chosen)}, {time.monotonic() - began:.0f} s: {row.name}", file=sys.stderr)
    samples, kernels = sum(r.samples for r in rows), sum(r.kernels for r in rows)
    differ = sum(len(r.faults) for r in rows)
    print(
        f"{len(rows)} of {len(chosen)} operators have kernels: {samples} samples, {kernels} in kernels of several"
        f" operators, {sum(r.errors for r in rows)} error inputs, {differ} differ from eager;"
        f" {(time.monotonic() - began) / 60:.0f} minutes"
    )
    whys = sum((r.apart for r in rows), Counter[str]())
    print("not in a kernel:", ", ".join(f"{why} {n}" for why, n in whys.most_common()))
    return int(differ > 0)


def _alone() -> None:
    """A process of one thread, which ends with the one that started it, however that ends."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    parent = parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def follow() -> None:
        connection.wait([sentinel])
        os._exit(1)

    Thread(target=follow, daemon=True).start()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="operator")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["FB_CACHE_DIR"] = cache
        raise SystemExit(main(given.names, given.jobs))
