"""Fused against eager on the memory-bound kernels of the README, in one interleaved run per kernel and size.

    python bench/kernels.py [--kernels softmax swiglu] [--sizes dram] [--rounds 21] [--json out.json]

Per kernel: fused, eager, eager writing into memory it has used before (`out=`), and a copy of as many bytes,
which is the limit. Once with results dropped at once, so that memory is used again, and once with all results
held alive, so that every call writes fresh memory; the limit is then a fresh copy of the output's size.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

import fusebound as fb
from fusebound.measure.environment import describe
from fusebound.measure.statistics import Samples, ratio
from fusebound.measure.timer import interleave

SIZES = {"l2": (64, 2048), "l3": (512, 2048), "dram": (8192, 2048)}
"""float32: 0.5, 4 and 64 MB a tensor."""

HELD = 8_000_000_000
"""Bytes of results that the held runs keep: enough for 21 rounds at the largest size without reuse."""

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A function, its arguments at a shape, and the same computed by eager into memory that is passed in."""

    fn: Callable[..., torch.Tensor]
    arguments: Callable[[int, int], Tensors]
    into: Callable[[Tensors], Callable[[], object]]


def layernorm_gelu(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Residual + LayerNorm + GELU."""
    return F.gelu(F.layer_norm(x + r, (x.shape[-1],), w, b))


def _layernorm_gelu_into(args: Tensors) -> Callable[[], object]:
    x, r, w, b = args
    added, normed, out = (torch.empty_like(x) for _ in range(3))
    mean, rstd = (x.new_empty(x.shape[0], 1) for _ in range(2))
    norm, gelu = torch.ops.aten.native_layer_norm.out, torch.ops.aten.gelu.out

    def call() -> object:
        torch.add(x, r, out=added)
        norm(added, (x.shape[-1],), w, b, 1e-5, out0=normed, out1=mean, out2=rstd)
        return gelu(normed, out=out)

    return call


def rmsnorm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """RMSNorm as models write it."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def _rmsnorm_into(args: Tensors) -> Callable[[], object]:
    x, w = args
    squares, out, mean = torch.empty_like(x), torch.empty_like(x), x.new_empty(x.shape[0], 1)

    def call() -> object:
        torch.pow(x, 2, out=squares)
        torch.mean(squares, -1, keepdim=True, out=mean)
        mean.add_(1e-6).rsqrt_()
        return torch.mul(x, mean, out=out).mul_(w)

    return call


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last axis."""
    return F.softmax(x, -1)


def _softmax_into(args: Tensors) -> Callable[[], object]:
    out = torch.empty_like(args[0])
    return lambda: torch.ops.aten._softmax.out(args[0], -1, False, out=out)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """SwiGLU's pointwise part."""
    return F.silu(gate) * up


def _swiglu_into(args: Tensors) -> Callable[[], object]:
    activated, out = torch.empty_like(args[0]), torch.empty_like(args[0])

    def call() -> object:
        torch.ops.aten.silu.out(args[0], out=activated)
        return torch.mul(activated, args[1], out=out)

    return call


def _normal(*shapes: tuple[int, ...]) -> Tensors:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(s, generator=generator) for s in shapes)


CASES = {
    "residual_layernorm_gelu": Case(
        layernorm_gelu, lambda m, n: _normal((m, n), (m, n), (n,), (n,)), _layernorm_gelu_into
    ),
    "rmsnorm": Case(rmsnorm, lambda m, n: _normal((m, n), (n,)), _rmsnorm_into),
    "softmax": Case(softmax, lambda m, n: _normal((m, n)), _softmax_into),
    "swiglu": Case(swiglu, lambda m, n: _normal((m, n), (m, n)), _swiglu_into),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel at one size, memory "reused" or "held"; µs, spread is interquartile range over median.

    `eager_into` and `copy_of_same_bytes` are None where memory is held: they reuse theirs by nature.
    """

    kernel: str
    size: str
    shape: tuple[int, int]
    memory: str
    fused_us: float
    fused_spread: float
    eager_us: float
    eager_spread: float
    speedup: float
    low: float
    high: float
    eager_into_us: float | None
    limit_us: float
    of_limit: float
    warnings: tuple[str, ...]


def measure(name: str, size: str, rounds: int) -> list[Row]:
    """Both rows of a kernel at a size."""
    case, shape = CASES[name], SIZES[size]
    args = case.arguments(*shape)
    compiled = fb.compile(case.fn)
    half = torch.zeros((sum(a.nbytes for a in args) + args[0].nbytes) // 8)
    target = torch.zeros_like(half)
    calls: dict[str, Callable[[], object]] = {
        "fused": lambda: compiled(*args),
        "eager": lambda: case.fn(*args),
    }
    limits: dict[str, Callable[[], object]] = {
        "into": case.into(args),
        "limit": lambda: target.copy_(half),
    }
    with torch.no_grad():
        reused = interleave(calls | limits, rounds=rounds)
        held = interleave(calls | {"limit": args[0].clone}, rounds=rounds, hold=True, hold_bytes=HELD)
    return [_row(name, size, "reused", reused), _row(name, size, "held", held)]


def _row(name: str, size: str, memory: str, times: dict[str, Samples]) -> Row:
    fused, eager, limit = times["fused"], times["eager"], times["limit"]
    speedup = ratio(eager, fused)
    into = times.get("into")
    return Row(
        kernel=name,
        size=size,
        shape=SIZES[size],
        memory=memory,
        fused_us=fused.median,
        fused_spread=fused.spread,
        eager_us=eager.median,
        eager_spread=eager.spread,
        speedup=speedup.value,
        low=speedup.low,
        high=speedup.high,
        eager_into_us=into.median if into else None,
        limit_us=limit.median,
        of_limit=ratio(limit, fused).value,
        warnings=tuple(w for s in times.values() for w in s.warnings),
    )


def table(rows: Sequence[Row]) -> Table:
    """The rows for a person: µs, and how many times as fast as eager."""
    made = Table(title="fused against eager, one interleaved run a line (µs)")
    for heading in ("kernel", "size", "memory"):
        made.add_column(heading)
    for heading in ("fused", "eager", "eager out=", "copy", "speed-up", "of the limit"):
        made.add_column(heading, justify="right")
    for r in rows:
        into = f"{r.eager_into_us:.0f}" if r.eager_into_us is not None else ""
        speedup = f"{r.speedup:.2f}x ({r.low:.2f}-{r.high:.2f})"
        made.add_row(
            r.kernel, r.size, r.memory, f"{r.fused_us:.0f}", f"{r.eager_us:.0f}", into, f"{r.limit_us:.0f}",
            speedup, f"{r.of_limit:.0%}",
        )  # fmt: skip
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, measure, print the table; `--json` stores everything with the machine."""
    parser = argparse.ArgumentParser(description="Fused kernels against eager and the copy limit.")
    parser.add_argument("--kernels", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as torch takes")
    parser.add_argument("--json", type=Path, help="where to store the figures")
    options = parser.parse_args(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    rows = [
        row
        for name in options.kernels
        for size in options.sizes
        for row in measure(name, size, options.rounds)
    ]
    Console(width=130).print(table(rows))
    if options.json:
        document: dict[str, Any] = {
            "format": "fusebound.bench.kernels/1",
            "machine": describe(),
            "rounds": options.rounds,
            "rows": [asdict(r) for r in rows],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
