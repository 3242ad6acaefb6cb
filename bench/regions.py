"""fusebound on fusible regions of real models: speed-up over eager, losses, how often eager loses to itself.

    python bench/regions.py [FOLDER] [--limit 40] [--rounds 15] [--inductor] [--json out.json]

FOLDER holds `regions.py` and `regions/*.json` (by default `../shared/corpus`). A region is slower if fused
loses by more than 2 % and 0.5 µs in three interleaved runs; `noise` counts regions on which eager loses to a
second eager in the first of them. `--inductor` times torch.compile in the same rounds, which takes some ten seconds a
region to compile; fusebound is `ahead` where Inductor is not faster by more than 2 % and 0.5 µs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from types import ModuleType

import torch

import fusebound as fb
from fusebound.measure.bench import is_slower
from fusebound.measure.environment import describe
from fusebound.measure.statistics import Samples, geometric_mean, ratio
from fusebound.measure.timer import interleave

_RUNS = 3


@dataclass(frozen=True, slots=True)
class Region:
    """One region: µs and speed-up; `eager` says that fusebound chose to run it eagerly, and why. Seconds are those of
    the first call, with its compilation; Inductor's are None where it was not asked."""

    name: str
    bytes: int
    fused_us: float
    eager_us: float
    speedup: float
    low: float
    high: float
    slower: bool
    noise: bool
    eager: str
    first_s: float
    inductor_us: float | None = None
    inductor_first_s: float | None = None
    behind_inductor: bool = False


def loader(folder: Path) -> ModuleType:
    """The corpus's own `regions.py`."""
    spec = importlib.util.spec_from_file_location("corpus_regions", folder / "regions.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{folder} has no regions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(
    path: Path, load: Callable[[Path], tuple[torch.nn.Module, list[object]]], rounds: int, *, inductor: bool
) -> Region:
    """Compile and time one region."""
    module, inputs = load(path)
    compiled = fb.compile(module)
    calls = {
        "fused": lambda: compiled(*inputs),
        "eager": lambda: module(*inputs),
        "again": lambda: module(*inputs),
    }
    if inductor:
        torch._dynamo.reset()
        other = torch.compile(load(path)[0])
        calls["inductor"] = lambda: other(*inputs)
    with torch.no_grad(), warnings.catch_warnings():
        # A region that runs eagerly says so once; here it is a column.
        warnings.simplefilter("ignore")
        first = {name: _seconds(calls[name]) for name in ("fused", "inductor") if name in calls}
        times = interleave(calls, rounds=rounds, budget_s=5.0)
        slower = is_slower(times["fused"], times["eager"])
        for _ in range(_RUNS - 1):
            slower = slower and _loses(calls, rounds)
    return _region(path, times, first, slower, compiled.reason if compiled.executable is None else "")


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _loses(calls: dict[str, Callable[[], object]], rounds: int) -> bool:
    times = interleave({n: calls[n] for n in ("fused", "eager")}, rounds=rounds, budget_s=5.0)
    return is_slower(times["fused"], times["eager"])


def _region(
    path: Path, times: dict[str, Samples], first: dict[str, float], slower: bool, eager: str
) -> Region:
    other = times.get("inductor")
    speedup = ratio(times["eager"], times["fused"])
    return Region(
        name=path.stem,
        bytes=json.loads(path.read_text(encoding="utf-8"))["bytes"],
        fused_us=times["fused"].median,
        eager_us=times["eager"].median,
        speedup=speedup.value,
        low=speedup.low,
        high=speedup.high,
        slower=slower,
        noise=is_slower(times["again"], times["eager"]),
        eager=eager,
        first_s=first["fused"],
        inductor_us=other.median if other else None,
        inductor_first_s=first.get("inductor"),
        behind_inductor=other is not None and is_slower(times["fused"], other),
    )


def summary(regions: Sequence[Region]) -> dict[str, float]:
    """The figures that matter, over all regions."""
    count = len(regions)
    beside = [r for r in regions if r.inductor_us is not None and r.inductor_first_s is not None]
    others = {
        "ahead_of_inductor": 1 - sum(r.behind_inductor for r in beside) / len(beside),
        "inductor_speedup": geometric_mean(r.eager_us / (r.inductor_us or 1) for r in beside),
        "inductor_first_s": median(r.inductor_first_s or 0 for r in beside),
    } if beside else {}  # fmt: skip
    return {
        "regions": count,
        "geometric_mean_speedup": geometric_mean(r.speedup for r in regions),
        "slower": sum(r.slower for r in regions) / count,
        "run_eagerly": sum(bool(r.eager) for r in regions) / count,
        "eager_slower_than_itself": sum(r.noise for r in regions) / count,
        "first_s": median(r.first_s for r in regions),
        **others,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments, measure region by region (progress on stderr), print the summary."""
    default = Path(__file__).resolve().parents[2] / "shared" / "corpus"
    parser = argparse.ArgumentParser(description="fusebound against eager on regions of real models.")
    parser.add_argument("folder", type=Path, nargs="?", default=default)
    parser.add_argument("--limit", type=int, default=0, help="so many, evenly spread over sizes; 0: all")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--inductor", action="store_true", help="time torch.compile too")
    parser.add_argument("--json", type=Path, help="where to store the figures")
    options = parser.parse_args(argv)
    paths = chosen(sorted((options.folder / "regions").glob("*.json")), options.limit)
    if not paths:
        parser.error(f"no regions under {options.folder}")
    load = loader(options.folder).load
    regions: list[Region] = []
    for i, path in enumerate(paths, 1):
        regions.append(measure(path, load, options.rounds, inductor=options.inductor))
        r = regions[-1]
        state = "eager" if r.eager else "SLOWER" if r.slower else ""
        print(f"{i}/{len(paths)} {r.name} {r.speedup:.2f}x {r.eager_us:.0f} µs {state}", file=sys.stderr)
    found = summary(regions)
    for name, value in found.items():
        print(f"{name:<26}{value:.3f}")
    if options.json:
        document = {
            "format": "fusebound.bench.regions/2",
            "machine": describe(),
            "rounds": options.rounds,
            "summary": found,
            "regions": [asdict(r) for r in regions],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def chosen(paths: Sequence[Path], limit: int) -> list[Path]:
    """All regions, or `limit` of them evenly spread over their sizes."""
    if not limit or limit >= len(paths):
        return list(paths)
    by_size = sorted(paths, key=lambda p: (json.loads(p.read_text(encoding="utf-8"))["bytes"], p.name))
    return [by_size[i * len(by_size) // limit] for i in range(limit)]


if __name__ == "__main__":
    raise SystemExit(main())
