"""Measuring at the first call leaves no trace on what the user's function writes or draws."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from fusebound.engine.build import build
from fusebound.engine.compile import EagerNotice, Options, compile
from fusebound.engine.contest import loses
from fusebound.verify.draws import CountedDraws

OPTIONS = Options(expected_calls=10**9, hardware="cpu-avx512")


def update(x: torch.Tensor, y: torch.Tensor) -> None:
    x.mul_(0.9).add_(y)


def momentum(p: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    m.mul_(0.9).add_(p * 0.1)
    p.sub_(m.abs().sqrt())
    return p * 2


def dropped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x * 2 + y, 0.5) * 3 + 1


def running(x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    mean.copy_(mean * 0.9 + x.mean(0) * 0.1)
    return (x - mean) * 2


@pytest.mark.parametrize("fn", [update, momentum, dropped])
def test_every_call_happens_once(fn: Callable[..., Any]) -> None:
    compiled = compile(fn, replace(OPTIONS, numerics="eager"))
    x, y = torch.randn(200, 300), torch.randn(200, 300)
    for _ in range(3):
        mine, theirs = (x.clone(), y.clone()), (x.clone(), y.clone())
        torch.manual_seed(3)
        got = compiled(*mine)
        state = torch.get_rng_state()
        torch.manual_seed(3)
        want = fn(*theirs)
        assert torch.equal(torch.get_rng_state(), state)
        torch.testing.assert_close((got, *mine), (want, *theirs))


def test_every_call_draws_one_seed() -> None:
    """Measuring at the first call does not move the generator, whatever the call draws by counter."""
    compiled = compile(dropped, OPTIONS)
    x, y = torch.randn(200, 300), torch.randn(200, 300)
    torch.manual_seed(3)
    results = [compiled(x, y) for _ in range(3)]
    state = torch.get_rng_state()
    torch.manual_seed(3)
    for result in results:
        with CountedDraws(1):
            torch.testing.assert_close(result, dropped(x, y))
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(results[0], results[1])


def test_columns_that_are_written() -> None:
    compiled = compile(running, OPTIONS)
    x = torch.randn(200, 300)
    mine, theirs = torch.zeros(300), torch.zeros(300)
    for _ in range(3):
        torch.testing.assert_close(compiled(x, mine), running(x, theirs))
        torch.testing.assert_close(mine, theirs)


def test_buffers_of_a_module_move_once() -> None:
    class Counted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(30)
            self.calls: torch.Tensor
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls.add_(1)
            return torch.relu(self.norm(x * 2 + 1))

    m = Counted()
    compiled = compile(m, OPTIONS)
    with torch.no_grad():
        for _ in range(3):
            compiled(torch.randn(200, 30))
    assert (float(m.calls), int(m.norm.num_batches_tracked or 0)) == (3.0, 3)


def test_folded_memory_at_the_first_call() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x[..., :1].add_(1)
        return x.exp() * 2

    x = torch.zeros(1).expand(300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerNotice)
        got = compile(f, OPTIONS)(x)
    assert float(x[0]) == 1.0
    torch.testing.assert_close(got, torch.ones(300).exp() * 2)


def in_place(x: torch.Tensor) -> torch.Tensor:
    x.mul_(3)
    return (x + 1).exp() * 2


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("fn", [lambda x: (x + 1).exp() * 2, in_place])
def test_what_is_timed_is_the_call(
    fn: Callable[..., Any], grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards that do not admit the call would be timed as a kernel that takes no time."""
    module = sys.modules["fusebound.engine.compile"]
    ran: list[torch.Tensor] = []

    def timed(fused: Callable[[], Any], captured: Any, args: Any, kwargs: Any) -> bool:
        loses(lambda: ran.append(fused()), captured, args, kwargs)
        return False

    def built(plan: Any, captured: Any, args: Any, kwargs: Any, *, target: Any) -> Any:
        return build(plan, captured, target=target)

    monkeypatch.setattr(module, "loses", timed)
    monkeypatch.setattr(module, "settle", built)
    x = torch.randn(300, 300)
    given = x.clone()
    with torch.set_grad_enabled(grad):
        compiled = compile(fn, Options(expected_calls=10**9, hardware="cpu-avx512"))
        compiled(given)
    assert compiled.executable is not None and ran and all(isinstance(y, torch.Tensor) for y in ran)
    torch.testing.assert_close(given, x * 3 if fn is in_place else x)


def test_losers_are_replaced_by_the_original() -> None:
    def tiny(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2)

    compiled = compile(tiny, OPTIONS)
    x = torch.randn(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            torch.testing.assert_close(compiled(x), tiny(x))
    assert compiled.executable is not None or compiled.reason.startswith("measured")
