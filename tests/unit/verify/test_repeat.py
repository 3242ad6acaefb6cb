"""Repeated runs: what depends on the number of threads, and whose doing it is."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

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
