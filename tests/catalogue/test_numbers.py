"""Python numbers that are read from tensors at run time: `x * lr.item()` is one kernel for every learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.catalogue.harness import FOREVER, PLANNED_FOR, call, compare, own, rand

from fusebound.capture.torch import Captured, capture
from fusebound.engine.build import build
from fusebound.plan.greedy import plan
from fusebound.runtime.executable import Executable
from fusebound.target import get
from fusebound.verify.check import verify

X = rand(6, 19)
Y = rand(6, 19, seed=1)
RATES = (0.37, -2.5, 0.0, 1.0, 1e-300, math.inf, math.nan)


def built(fn: Callable[..., Any], *args: Any, policy: str = "tile") -> tuple[Executable, Captured]:
    captured = capture(fn, own(args))
    made = plan(captured.graph, target=get(PLANNED_FOR), policy=policy, expected_calls=FOREVER)
    return build(made, captured), captured


def rate(value: float, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(value, dtype=dtype)


def step(x: torch.Tensor, y: torch.Tensor, lr: torch.Tensor) -> torch.Tensor:
    rate = lr.item()
    return (x - y * rate) * (1 - rate * 0.01)


def factors(x: torch.Tensor, y: torch.Tensor, lr: torch.Tensor) -> torch.Tensor:
    rate = -lr.item()
    return torch.add(x, y, alpha=rate).addcmul(x, y, value=rate).addcdiv(x, y, value=rate) + x.lerp(y, rate)


def compared(x: torch.Tensor, y: torch.Tensor, lr: torch.Tensor) -> torch.Tensor:
    rate = lr.item()
    return torch.where(x > rate, y, x * 2) + (y != rate)


def promoted(x: torch.Tensor, y: torch.Tensor, lr: torch.Tensor) -> torch.Tensor:
    rate = lr.item()
    return ((x * 3).int() * rate + (x > 0) * rate) / (y * 5).to(torch.int64).sub(rate)


def by_python(x: torch.Tensor, y: torch.Tensor, lr: torch.Tensor) -> torch.Tensor:
    """Powers, roots and divisors are computed by Python itself."""
    rate = lr.item()
    return x * (1 - 0.9 ** abs(rate)) + y / (2 + rate * rate) ** 0.5 + 1 / (rate * rate + 1)


def by_the_framework(x: torch.Tensor, y: torch.Tensor, lr: torch.Tensor) -> torch.Tensor:
    """An operator without a lowering for such numbers takes what a kernel computed."""
    rate = lr.item() * 2
    return (x.clamp(max=rate) + y * rate).relu()


def in_half(x: torch.Tensor, y: torch.Tensor, lr: torch.Tensor) -> torch.Tensor:
    rate = lr.item()
    return (x.bfloat16() * rate + rate) - torch.add(y.half(), y.half(), alpha=rate) / rate


PROGRAMS: list[Callable[..., Any]] = [
    step, factors, compared, promoted, by_python, by_the_framework, in_half
]  # fmt: skip


@pytest.mark.parametrize("policy", ["tile", "none"])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_one_plan_for_every_number(fn: Callable[..., Any], policy: str) -> None:
    exe, captured = built(fn, X, Y, rate(0.3), policy=policy)
    for value in RATES:
        args = (X, Y, rate(value))
        try:
            fn(*args)
        except (RuntimeError, ZeroDivisionError) as error:
            with pytest.raises(type(error)):
                call(exe, args)
        else:
            compare(captured, args, call(exe, args))


@pytest.mark.parametrize("fn", [step, factors, compared, promoted])
def test_numbers_stay_inside_a_kernel(fn: Callable[..., Any]) -> None:
    exe, captured = built(fn, X, Y, rate(0.3))
    assert len(exe.kernels) == len(exe.plan.groups) == 1
    assert verify(exe, captured, (X, Y, rate(0.3))).ok


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_number_is_the_tensor_s(dtype: torch.dtype) -> None:
    exe, captured = built(step, X, Y, rate(0.1, dtype))
    args = (X, Y, rate(0.7, dtype))
    compare(captured, args, call(exe, args))


@pytest.mark.parametrize("value", [1e39, -1e300])
def test_a_factor_beyond_float32_raises_what_eager_raises(value: float) -> None:
    exe, _ = built(factors, X, Y, rate(0.3))
    args = (X, Y, rate(value))
    with pytest.raises(RuntimeError, match="without overflow") as eager:
        factors(*args)
    with pytest.raises(RuntimeError) as fused:
        call(exe, args)
    assert str(fused.value) == str(eager.value)


def test_a_product_with_a_number_beyond_float32_is_infinite() -> None:
    exe, captured = built(step, X, Y, rate(0.3))
    args = (X, Y, rate(1e300))
    compare(captured, args, call(exe, args))


def test_a_number_that_is_returned_is_a_number() -> None:
    def fn(x: torch.Tensor, lr: torch.Tensor) -> tuple[torch.Tensor, float]:
        rate = lr.item()
        return x * rate + 1, rate * 2

    exe, captured = built(fn, X, rate(0.3))
    found = call(exe, (X, rate(0.7)))
    compare(captured, (X, rate(0.7)), found)


def test_in_place() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, lr: torch.Tensor) -> None:
        rate = lr.item()
        x.mul_(1 - rate * 0.1).add_(y, alpha=-rate)

    exe, _ = built(fn, X.clone(), Y, rate(0.3))
    mine, theirs = X.clone(), X.clone()
    exe(mine, Y, rate(0.7))
    fn(theirs, Y, rate(0.7))
    assert torch.equal(mine, theirs)
    with pytest.raises(RuntimeError, match="without overflow"):
        exe(mine, Y, rate(1e300))
