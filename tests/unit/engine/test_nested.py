"""A compiled function that is called by another is a part of it: traced through, fused with, watched."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fusebound.engine.compile import CompiledFunction, Options, compile
from fusebound.engine.sampled import SampledFunction

OPTIONS = Options(contest=False, expected_calls=10**9, hardware="cpu-avx512", strict=True)

scale = SimpleNamespace(k=2.0)


def inner(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1) * scale.k


def sampled(fn: Callable[..., Any]) -> CompiledFunction:
    return SampledFunction(fn, OPTIONS, 0.5)


def compiled(fn: Callable[..., Any]) -> CompiledFunction:
    return compile(fn, OPTIONS)


@pytest.mark.parametrize("make", (compiled, sampled))
@pytest.mark.parametrize("warm", (False, True))
def test_one_kernel_for_both(make: Callable[..., CompiledFunction], warm: bool) -> None:
    g = make(inner)
    x = torch.randn(9, 33)
    if warm:
        g(x)
    f = compiled(lambda x: torch.relu(g(x) + 1))
    torch.testing.assert_close(f(x), torch.relu(inner(x) + 1))
    assert f.plan is not None and g(x).shape == x.shape
    assert [group.users for group in f.plan.groups] == [("softmax", "mul", "add", "relu")]
    assert f.plan.graph.user["mul"].source.code == "return torch.softmax(x, -1) * scale.k"


def test_what_the_inner_function_reaches_is_watched() -> None:
    g = compiled(inner)
    f = compiled(lambda x: g(x) + 1)
    x = torch.randn(9, 33)
    before = f(x)
    scale.k *= 2
    torch.testing.assert_close(f(x) - 1, 2 * (before - 1))


def test_parameters_of_the_inner_module_are_inputs() -> None:
    norm = torch.nn.LayerNorm(33)
    g = compiled(norm)
    f = compiled(lambda x: torch.relu(g(x)))
    x = torch.randn(9, 33)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(f(x), torch.relu(norm(x)))
            norm.weight.add_(1.0)
    assert f.plan is not None and "weight" in {i.target.rpartition(".")[2] for i in f.plan.graph.inputs}


def test_inside_a_branch() -> None:
    g = compiled(inner)
    x = torch.randn(9, 33)
    g(x)
    f = compiled(lambda x: torch.cond(x.sum() > 0, lambda x: torch.relu(g(x)), lambda x: x - 1, (x,)))
    torch.testing.assert_close(f(x.abs()), inner(x.abs()))
    torch.testing.assert_close(f(-x.abs()), -x.abs() - 1)


def test_compiled_twice_is_the_users_function_compiled_anew() -> None:
    assert compiled(compiled(inner)).fn is inner
