"""Python numbers beside half-precision tensors: eager rounds them to the tensor's type for some operators."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fusebound.capture.torch import capture
from fusebound.engine.build import build
from fusebound.plan.greedy import plan
from fusebound.target import get

HALF = (torch.bfloat16, torch.float16)
T = torch.Tensor


def fused(fn: Callable[[T], T], x: T) -> T:
    """The result of one kernel."""
    captured = capture(fn, (x,))
    exe = build(plan(captured.graph, target=get("cpu-avx512"), expected_calls=10**9), captured)
    assert len(exe.kernels) == 1
    return exe(x)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x + 0.1).neg().neg(),
        lambda x: (0.3 - x).abs().neg(),
        lambda x: (x % 0.3).neg().neg(),
        lambda x: x.clamp(-0.3, 0.7).neg().neg(),
        lambda x: torch.where(x > 0.3, x, 0.1).neg().neg(),
        lambda x: (x < 0.3).logical_not().logical_not(),
    ],
)
def test_without_a_wide_value_results_are_eager_s(fn: Callable[[T], T], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(65).to(dtype)
    assert torch.equal(fused(fn, x), fn(x))


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(
    "fn", [lambda x: x * 0.1 - 0.1, lambda x: 0.7 - (x - 0.3), lambda x: (x + 0.1) - 0.1]
)
def test_beside_a_wide_value_constants_cancel(fn: Callable[[T], T], dtype: torch.dtype) -> None:
    """At these values eager's roundings agree, and its result is exact."""
    x = torch.tensor([1.0, 1.0, 0.0] * 5).to(dtype)
    got, exact = fused(fn, x).double(), fn(x.double())
    assert bool(((got - exact).abs() <= 2 * (fn(x).double() - exact).abs() + 1e-6).all()), got - exact
