"""The timer's order, batches and holding of results; no assertion on a time."""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest
import torch

from fusebound.measure.timer import interleave


def test_all_callables_run_in_every_round_and_the_order_alternates() -> None:
    calls: list[str] = []
    found = interleave(
        {n: (lambda n=n: calls.append(n)) for n in "abc"}, rounds=4, warmup=0, min_sample_us=0.0
    )
    assert {n: len(s.times_us) for n, s in found.items()} == {"a": 4, "b": 4, "c": 4}
    last = calls[-12:]
    rounds = [last[i : i + 3] for i in range(0, 12, 3)]
    assert all(sorted(r) == ["a", "b", "c"] for r in rounds)
    assert len({tuple(r) for r in rounds}) == 4


def test_short_calls_are_batched() -> None:
    found = interleave({"nothing": lambda: None}, rounds=3, min_sample_us=50.0)
    assert found["nothing"].batch > 10


def test_a_pause_comes_ahead_of_every_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr("fusebound.measure.timer.time.sleep", seen.append)
    calls = {name: (lambda name=name: seen.append(name)) for name in "ab"}
    interleave(calls, rounds=2, warmup=0, min_sample_us=0.0, pause_s=0.25)
    assert seen[-8:] == [0.25, "a", 0.25, "b", 0.25, "b", 0.25, "a"]


def test_results_are_dropped_at_once_or_held() -> None:
    def addresses(hold: bool) -> set[int]:
        seen: list[int] = []

        def call() -> torch.Tensor:
            t = torch.empty(1 << 16)
            seen.append(t.data_ptr())
            return t

        interleave({"c": call}, rounds=5, warmup=2, min_sample_us=0.0, hold=hold)
        return set(seen[-5:])

    assert len(addresses(hold=True)) == 5
    assert len(addresses(hold=False)) < 5


def test_held_results_are_dropped_between_rounds_beyond_the_limit() -> None:
    alive: list[int] = []

    class Result:
        nbytes = 100
        count = 0

        def __init__(self) -> None:
            Result.count += 1
            alive.append(Result.count)

        def __del__(self) -> None:
            Result.count -= 1

    interleave({"c": Result}, rounds=9, warmup=0, min_sample_us=0.0, hold=True, hold_bytes=250)
    assert max(alive) <= 4


def test_the_collector_is_off_during_a_run_and_restored() -> None:
    states: list[bool] = []
    assert gc.isenabled()
    interleave({"c": lambda: states.append(gc.isenabled())}, rounds=1, min_sample_us=0.0)
    assert not any(states) and gc.isenabled()


def test_a_budget_ends_the_run_early() -> None:
    found = interleave({"c": lambda: None}, rounds=1000, min_sample_us=0.0, budget_s=0.0)
    assert len(found["c"].times_us) == 3


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="at least one"):
        interleave({}, rounds=3)
    with pytest.raises(ValueError, match="at least one"):
        interleave({"c": lambda: None}, rounds=0)


def test_consecutive_rounds_differ_in_order() -> None:
    calls: list[str] = []
    interleave({n: (lambda n=n: calls.append(n)) for n in "ab"}, rounds=4, warmup=0, min_sample_us=0.0)
    last = ["".join(calls[-8:][i : i + 2]) for i in range(0, 8, 2)]
    assert any(a != b for a, b in pairwise(last))
