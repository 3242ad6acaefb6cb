"""Measure the suite, print its tables, store the figures.

python -m bench.suite [--cases softmax_last swiglu] [--sizes dram] [--dtypes float32] [--json out.json]
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console

from bench.suite.cases import CASES
from bench.suite.contenders import MAKERS, missing
from bench.suite.measure import DTYPES, SIZES, Row, measure
from bench.suite.tables import NOT_COUNTED, summary, table
from fusebound.measure.environment import describe


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, measure case by case (progress on stderr), print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.suite", description="fusebound on memory-bound kernels against all others."
    )
    others = [name for name in MAKERS if name not in ("fused", "eager")]
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="CASE")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--against", nargs="+", choices=others, default=others, help="beside eager")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as torch takes")
    parser.add_argument("--json", type=Path, help="where to store the figures")
    options = parser.parse_args(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    absent = {name: why for name, why in missing().items() if name in options.against}
    for name, why in absent.items():
        print(f"no column {name}: {why}", file=sys.stderr)
    names = ("fused", "eager", *(name for name in options.against if name not in absent))
    rows: list[Row] = []
    for size in options.sizes:
        for dtype in options.dtypes:
            for name in options.cases:
                print(f"{name} {size} {dtype}", file=sys.stderr, flush=True)
                rows += measure(CASES[name], size, dtype, names, options.rounds)
    found = summary(rows)
    console = Console(width=150)
    for memory in ("reused", "held"):
        console.print(table(rows, memory))
    for line, value in found.items():
        console.print(f"{line:<44}{value if isinstance(value, int) else f'{value:.3f}'}")
    console.print(NOT_COUNTED)
    if options.json:
        _store(options.json, rows, found, options.rounds)
    return 0


def _store(path: Path, rows: Sequence[Row], found: dict[str, float], rounds: int) -> None:
    document = {
        "format": "fusebound.bench.suite/1",
        "machine": describe(),
        "rounds": rounds,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "summary": found,
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
