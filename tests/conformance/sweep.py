"""All of `op_db` (`make conformance`): `python -m tests.conformance.sweep [operator ...]`.

Prints a line for every operator that has a kernel, with its samples over all types and variants, then what
differs from eager. An operator none of whose `PROBES` samples gets a kernel in a type is left to the framework.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field

import torch
from tests.conformance.errors import check_errors
from tests.conformance.opinfo import (
    DTYPES,
    TOGETHER,
    Case,
    OpInfo,
    Outcome,
    cases,
    check,
    foreach_operators,
    full_name,
    operators,
    variants,
)

PROBES = 8


@dataclass
class Row:
    """What the samples of one operator gave."""

    name: str
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    errors: int = 0
    faults: list[str] = field(default_factory=list[str])

    @property
    def kernels(self) -> int:
        return sum(not o.why for o in self.outcomes)

    def __str__(self) -> str:
        whys = Counter(o.why for o in self.outcomes if o.why)
        apart = ", ".join(f"{why} {n}" for why, n in sorted(whys.items()))
        counts = f"{len(self.outcomes):8} {self.kernels:8} {self.errors:7} {len(self.faults):7}"
        return f"{self.name:50} {counts}  {apart}"


def swept(found: list[Case]) -> list[Outcome]:
    """The outcomes of all cases, or of the probes if no kernel holds one of them."""
    probes = found[:: max(len(found) // PROBES, 1)][:PROBES]
    outcomes = check(probes) if probes else []
    if all(o.why for o in outcomes):
        return outcomes
    rest = [c for c in found if c not in probes]
    return [*outcomes, *(o for i in range(0, len(rest), TOGETHER) for o in check(rest[i : i + TOGETHER]))]


def sweep(op: OpInfo) -> Row:
    """One operator, over its types and variants, and its error inputs."""
    row = Row(full_name(op))
    for dtype in DTYPES:
        if dtype in op.dtypes:
            for variant in variants(op):
                torch.manual_seed(0)
                row.outcomes += swept(list(cases(op, dtype, variant)))
    row.faults += [f"{o.case}: {o.fault}" for o in row.outcomes if o.fault]
    if row.kernels:
        row.errors, wrong = check_errors(op)
        row.faults += wrong
    return row


def main(names: list[str]) -> int:
    """Sweep the named operators, or all; returns 1 where something differs from eager."""
    torch.set_num_threads(1)
    chosen = [o for o in (*operators(), *foreach_operators()) if not names or o.name in names]
    rows: list[Row] = []
    print(f"{'operator':50} {'samples':>8} {'kernels':>8} {'errors':>7} {'differ':>7}  not in a kernel")
    for op in chosen:
        row = sweep(op)
        if row.kernels or row.faults:
            rows.append(row)
            print(row, *(f"    {fault}" for fault in row.faults), sep="\n", flush=True)
    samples, kernels = sum(len(r.outcomes) for r in rows), sum(r.kernels for r in rows)
    differ = sum(len(r.faults) for r in rows)
    print(
        f"{len(rows)} of {len(chosen)} operators have kernels: {samples} samples, {kernels} in kernels of several"
        f" operators, {sum(r.errors for r in rows)} error inputs, {differ} differ from eager"
    )
    return int(differ > 0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        os.environ["FB_CACHE_DIR"] = cache
        raise SystemExit(main(sys.argv[1:]))
