"""Repeated runs: what depends on the number of threads, and whose doing it is."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from fusebound.capture.torch import capture
from fusebound.engine.build import build
from fusebound.plan.greedy import plan
from fusebound.target import get
from fusebound.verify.check import verify
from fusebound.verify.program import Outcome, Program
from fusebound.verify.repeat import repeat


class Stub:
    """A program whose kernels follow the number of threads, and an eager that does so from its third draw on, or
    never."""

    leaves = ()

    def __init__(self, eager_varies: bool) -> None:
        self.eager_varies, self.draws = eager_varies, 0

    def settle(self) -> None:
        self.draws += 1

    def fused(self, seed: int) -> Outcome:
        return Outcome((torch.tensor(float(torch.get_num_threads())),))

    def eager(self, seed: int) -> Outcome:
        varies = self.eager_varies and self.draws >= 2
        return Outcome((torch.tensor(float(torch.get_num_threads() if varies else 0)),))


@pytest.mark.parametrize("eager_varies", [True, False])
def test_a_sum_that_rounds_alike_by_chance_is_no_proof_against_the_program(eager_varies: bool) -> None:
    found = repeat(cast("Program", cast("Any", Stub(eager_varies))))
    assert found.deterministic is True
    assert found.threads is (None if eager_varies else False)
    assert bool(found.faults) is not eager_varies


def test_a_run_as_users_make_it_is_compared_with_the_watched_ones() -> None:
    x = torch.randn(3, 40)
    captured = capture(lambda x: x.exp() + 1, (x,))
    exe = build(plan(captured.graph, target=get("cpu-avx512"), expected_calls=10**9), captured)
    assert exe.is_straight and verify(exe, captured, (x,)).ok
    exe._straight = lambda given: [torch.zeros(3, 40)]
    assert "a run into memory that was not filled before differs" in verify(exe, captured, (x,)).faults
