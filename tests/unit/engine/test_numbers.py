"""Python floats that change: one plan for all of them after the second."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusebound.engine.compile import SPECIALIZATIONS, CompiledFunction, EagerNotice, Options, compile

CPU = Options(contest=False, expected_calls=10**9, hardware="cpu-avx512")
X, Y = torch.randn(6, 19), torch.randn(6, 19)


def adamw(p: Any, g: Any, m: Any, v: Any, lr: float, step: float) -> None:
    p.mul_(1 - lr * 0.01)
    m.lerp_(g, 0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    denominator = (v.sqrt() / (1 - 0.999**step) ** 0.5).add_(1e-8)
    p.addcdiv_(m, denominator, value=-lr / (1 - 0.9**step))


def plans(f: CompiledFunction) -> int:
    return len(f._table)


def test_a_learning_rate_that_changes_is_compiled_twice() -> None:
    f = compile(adamw, CPU)
    mine, theirs = (
        [torch.randn(40, generator=torch.Generator().manual_seed(i)).abs() for i in range(4)] for _ in "ab"
    )
    for step in range(1, 3 * SPECIALIZATIONS):
        rate = 1e-3 / step
        f(*mine, rate, float(step))
        adamw(*theirs, rate, float(step))
        assert all(map(torch.equal, mine, theirs)), step
        assert f.executable is not None and f.executable.kernels
    assert plans(f) == 1


def test_other_shapes_and_other_floats_take_the_same_way() -> None:
    f = compile(lambda x, t, y: x / t * y.relu(), CPU)
    for t in (0.5, 2.0, -3.0):
        for x, y in ((X, Y), (X[:3], Y[:3]), (X[:, :4], Y[:, :4])):
            assert torch.equal(f(x, t, y), x / t * y.relu())
    assert torch.equal(f(X, 2, Y), X / 2 * Y.relu()), "an integer is none"


def test_a_branch_on_a_float_keeps_one_plan_for_each() -> None:
    f = compile(lambda x, t: (x * t).abs() if t > 0 else x - 1, CPU)
    for t in (0.5, 2.0, -3.0, 0.5):
        assert torch.equal(f(X, t), (X * t).abs() if t > 0 else X - 1)
    assert plans(f) == 3


def test_modules_keep_their_parameters() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(19))

        def forward(self, x: torch.Tensor, t: float) -> torch.Tensor:
            return (x * self.w * t).relu()

    m = Scaled()
    f = compile(m, CPU)
    with torch.no_grad():
        for t in (0.5, 2.0, -3.0):
            m.w.mul_(1.5)
            assert torch.equal(f(X, t), m(X, t)) and f.executable is not None
        m.w = torch.nn.Parameter(torch.ones(19))
        assert torch.equal(f(X, 4.0), m(X, 4.0))


def test_closures_are_watched() -> None:
    scale = 2.0

    def fn(x: torch.Tensor, t: float) -> torch.Tensor:
        return (x * t + scale).relu()

    f = compile(fn, CPU)
    for t in (0.5, 2.0):
        assert torch.equal(f(X, t), fn(X, t))
    scale = 5.0
    assert torch.equal(f(X, 3.0), fn(X, 3.0))


@pytest.mark.parametrize("t", [float("inf"), float("nan"), 1e300, 0.0, -0.0])
def test_every_float(t: float) -> None:
    f = compile(lambda x, t: (x * t + t).abs(), CPU)
    for value in (0.5, 2.0, t):
        assert torch.equal(f(X, value).nan_to_num(7), (X * value + value).abs().nan_to_num(7))


def test_gradients_are_eager_s() -> None:
    f = compile(lambda x, t: (x * t).tanh(), CPU)
    f(X, 0.5)
    f(X, 0.7)
    x = X.clone().requires_grad_()
    with pytest.warns(EagerNotice):
        f(x, 0.9).sum().backward()
    assert x.grad is not None
