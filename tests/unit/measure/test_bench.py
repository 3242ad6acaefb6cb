"""Benchmarks of made-up programs: what is counted and confirmed, on calls whose order is known, not timed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from fusebound.errors import UsageError
from fusebound.measure.baselines import baseline
from fusebound.measure.bench import bench, is_slower
from fusebound.measure.statistics import Samples
from fusebound.measure.sweep import Point, Sweep, sweep


@dataclass(frozen=True)
class Traced:
    fn: Any


X = torch.ones(64)


def slow(x: torch.Tensor) -> torch.Tensor:
    time.sleep(0.002)
    return x + 1


def test_a_speedup_is_eager_s_time_over_the_fused_one() -> None:
    result = bench(lambda x: x + 1, Traced(slow), (X,), rounds=5)
    assert result.speedup.value > 2 and not result.slower and result.rounds == 5
    assert result.against("eager").times.name == "eager" and result.fused_held is None
    assert result.kernels == () and result.threads == torch.get_num_threads()


def test_a_loss_is_confirmed_and_reported() -> None:
    result = bench(slow, Traced(lambda x: x + 1), (X,), rounds=4)
    assert result.slower and result.speedup.high < 1


def test_small_differences_are_no_loss() -> None:
    def samples(us: float) -> Samples:
        return Samples("s", (us,) * 9)

    assert not is_slower(samples(101.0), samples(100.0))
    assert not is_slower(samples(2.4), samples(2.0))
    assert is_slower(samples(103.0), samples(100.0)) and is_slower(samples(2.6), samples(2.0))


def test_large_results_are_measured_held_alive_too() -> None:
    x = torch.ones(1 << 19)
    result = bench(lambda x: x + 1, Traced(lambda x: x + 1), (x,), rounds=3)
    assert result.fused_held is not None and result.against("eager").held is not None


def test_arguments_that_the_function_changes_keep_their_values() -> None:
    x = torch.ones(8)
    seen: list[float] = []

    def step(x: torch.Tensor) -> torch.Tensor:
        seen.append(float(x[0]))
        return x.mul_(2)

    bench(step, Traced(step), (x,), rounds=3)
    assert torch.equal(x, torch.ones(8))
    assert max(seen) < 2.0**60


def test_the_groups_of_an_executable_are_listed() -> None:
    class Exe:
        def __call__(self, x: torch.Tensor, *, y: torch.Tensor) -> torch.Tensor:
            return x + y

        def profile(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, float]:
            return {"g0": 1.5 * len(args), **dict.fromkeys(kwargs, 2.0)}

    found = bench(Exe(), Traced(lambda x, y: x + y), (X,), {"y": X}, rounds=3)
    assert found.kernels == (("g0", 1.5), ("y", 2.0))


def test_an_unknown_opponent() -> None:
    with pytest.raises(UsageError, match="known: eager, inductor"):
        bench(slow, Traced(slow), (X,), against=("tvm",))


def test_inductor_runs_or_says_what_it_needs() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + 1)

    try:
        found = baseline("inductor", fn, (X,), {})
    except UsageError as why:
        assert "Inductor cannot compile" in str(why) and "compiler" in str(why)
    else:
        result = found.call()
        assert isinstance(result, torch.Tensor) and torch.equal(result, fn(X)) and found.compile_s > 0


def test_the_size_from_which_fusing_pays() -> None:
    def build(shape: tuple[int, ...]) -> tuple[Any, Any, tuple[()], dict[str, torch.Tensor]]:
        fused = slow if shape[0] < 100 else (lambda x: x + 1)
        eager = (lambda x: x + 1) if shape[0] < 100 else slow
        return fused, eager, (), {"x": torch.ones(shape)}

    found = sweep(build, [(10,), (50,), (100,), (200,)], rounds=3)
    assert [p.shape for p in found.points] == [(10,), (50,), (100,), (200,)]
    assert found.pays_from == (100,)
    assert Sweep(found.points[:2]).pays_from is None and isinstance(found.points[0], Point)
