"""What a call costs besides its kernels: small tensors, fused against eager.

    python bench/call.py [--rounds 400] [--json out.json]

The kernel's own time is that of its machine code called alone; the rest of a fused call is guards, memory and
interpreter. The least of many short samples is given, in µs: whatever else runs only adds to it.
"""

from __future__ import annotations

import argparse
import json
import timeit
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fusebound.engine.compile import CompiledFunction, Options
from fusebound.measure.environment import describe
from fusebound.runtime.launch import on_one_thread

ELEMENTS = 1024
NUMBER = 300


def two(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return a * b + c


def four(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    return torch.relu(a * b + c) * d


def step(a: torch.Tensor, b: torch.Tensor) -> None:
    a.mul_(0.9).add_(b, alpha=0.1)


@dataclass(frozen=True, slots=True)
class Cost:
    """µs of one call."""

    name: str
    eager: float
    fused: float
    kernel: float

    @property
    def over(self) -> float:
        """What a fused call takes besides the kernel."""
        return self.fused - self.kernel


def measure(fn: Callable[..., Any], count: int, rounds: int) -> Cost:
    """One function on `count` tensors of 4 kB."""
    args = [torch.randn(ELEMENTS) for _ in range(count)]
    fused = CompiledFunction(fn, Options(hardware="cpu-avx512", contest=False, expected_calls=10**9))
    for _ in range(3):
        fused(*args)
    exe = fused.executable
    assert exe is not None and len(exe.kernels) == 1, fused.reason
    native = on_one_thread(exe.kernels[0], ELEMENTS)
    assert native is not None
    given = [*args, *(torch.empty(ELEMENTS) for _ in range(len(exe.kernels[0].program.params) - count)), 1]

    def least(call: Callable[[], Any]) -> float:
        return min(timeit.repeat(call, number=NUMBER, repeat=rounds)) / NUMBER * 1e6

    return Cost(
        fn.__name__, least(lambda: fn(*args)), least(lambda: fused(*args)), least(lambda: native(*given))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        costs = [
            measure(two, 3, given.rounds),
            measure(four, 4, given.rounds),
            measure(step, 2, given.rounds),
        ]
    print(
        f"{'function':10} {'eager':>8} {'fused':>8} {'kernel':>8} {'besides':>8}   µs, {4 * ELEMENTS} bytes a tensor"
    )
    for c in costs:
        print(f"{c.name:10} {c.eager:8.2f} {c.fused:8.2f} {c.kernel:8.2f} {c.over:8.2f}")
    if given.json:
        record = {"environment": describe(), "calls": [asdict(c) | {"over": c.over} for c in costs]}
        given.json.write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
