"""Sums whose order matters: no worse than eager against float64, whatever the order is."""

from __future__ import annotations

import pytest
import torch
from tests.catalogue.harness import FOREVER, PLANNED_FOR, check, rand

from fusebound.engine.compile import Options, compile

FLOATS = (torch.float32, torch.bfloat16)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gradients_of_micro_batches(dtype: torch.dtype) -> None:
    def accumulate(total: torch.Tensor, *grads: torch.Tensor) -> torch.Tensor:
        for g in grads:
            total = total + g / len(grads)
        return total

    parts = [rand(33, 65, dtype=dtype, seed=i) * 3.0**i for i in range(6)]
    check(accumulate, torch.zeros(33, 65, dtype=dtype), *parts)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gradients_accumulated_in_place_under_eager_numerics_are_eagers(dtype: torch.dtype) -> None:
    def accumulate(total: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        for g in (a, b, c):
            total += g * 0.5

    options = Options(contest=False, expected_calls=FOREVER, hardware=PLANNED_FOR, numerics="eager")
    f = compile(accumulate, options)
    parts = [rand(33, 65, dtype=dtype, seed=i) * 10.0**-i for i in range(3)]
    mine, theirs = torch.zeros(33, 65, dtype=dtype), torch.zeros(33, 65, dtype=dtype)
    for _ in range(4):
        f(mine, *parts)
        accumulate(theirs, *parts)
    assert f.plan is not None and f.plan.kernels
    assert torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("batch", [1, 17, 300, 1024])
def test_weight_and_bias_gradients_over_the_batch(batch: int, dtype: torch.dtype) -> None:
    def gradients(x: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * g).sum(0), g.sum(0)

    x, g = rand(batch, 33, dtype=dtype), rand(batch, 33, dtype=dtype, seed=1)
    captured = compile(gradients, Options(contest=False, expected_calls=FOREVER, hardware=PLANNED_FOR))
    captured(x, g)
    assert captured.plan is not None and captured.plan.kernels
    check(gradients, x, g, kernels=len(captured.plan.kernels))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("n", [31, 1000, 70_001])
def test_one_large_number_before_many_small_ones(n: int, dtype: torch.dtype) -> None:
    """A sequential sum in the narrow type loses all of them; a tree, or a wider accumulator, does not."""

    def total(x: torch.Tensor) -> torch.Tensor:
        return (x * 1.0).sum(-1)

    x = torch.full((3, n), 2.0**-13, dtype=dtype)
    x[:, 0] = 1024.0
    check(total, x)


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e18])
def test_terms_that_cancel(scale: float) -> None:
    def rest(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (torch.cat([x, y, -x], -1) * 1.0).sum(-1)

    check(rest, rand(9, 1000) * scale, rand(9, 5))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_softmax_over_a_long_row(spread: float, dtype: torch.dtype) -> None:
    def attention(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * spread, -1)

    check(attention, rand(3, 9000, dtype=dtype))
