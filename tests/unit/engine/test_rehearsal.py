"""What the rehearsal of a first call tells apart, and that it leaves no trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from fusebound.capture.torch import capture
from fusebound.engine import compile as compiling
from fusebound.engine.compile import CompiledFunction, Options
from fusebound.engine.rehearsal import Difference, rehearse

Fn = Callable[..., Any]
FUSED = Options(contest=False, expected_calls=10**9, hardware="cpu-avx512")


def views(x: torch.Tensor) -> Any:
    y = x * 2 + 1
    return y[:2], y


class Rebinds(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("b", torch.zeros(5))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2).add_(y)
        self.b = self.b + x.mean(0)
        return (x - self.b).relu() * 2

    def on(self, *tensors: torch.Tensor) -> Any:
        """The same on all inputs of the graph: the buffer's new values, and the result."""
        b, x, y = sorted(tensors, key=torch.Tensor.dim)
        x.mul_(2).add_(y)
        b.add_(x.mean(0))
        return (x - b).relu() * 2


def fails(x: torch.Tensor) -> Any:
    raise ValueError(str(x.shape))


class Running:
    """A function in the place of an executable."""

    def __init__(self, fn: Fn) -> None:
        self.fn = fn

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        return tree_leaves(self.fn(*inputs))


OTHERWISE: list[tuple[Fn, str, bool]] = [
    (lambda x: ((x * 2 + 1)[:2], x * 2 + 1), "result 1", True),
    (lambda x: (views(x)[0], views(x)[0]), "result 1", False),
    (lambda x: tuple(t.double() for t in views(x)), "result 0", False),
    (lambda x: ((y := (x.t().contiguous() * 2 + 1).t())[:2], y), "strides (1, 4)", True),
    (lambda x: views(x[:3]), "result 1", False),
    (fails, "raises ValueError", False),
]


@pytest.mark.parametrize(("other", "words", "only_layout"), OTHERWISE)
def test_other_layouts_are_named(other: Fn, words: str, only_layout: bool) -> None:
    x = torch.randn(4, 5)
    captured = capture(views, (x,))
    assert rehearse(Running(views), captured, (x,), {}) is None
    found = rehearse(Running(other), captured, (x,), {})
    assert found is not None and words in found.text and found.only_layout == only_layout


def test_sizes_that_tracing_takes_for_equal_may_be_broadcast() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = x.unique()
        return torch.zeros_like(found[1:]) + found, y.exp() + 1

    compiled = CompiledFunction(f, FUSED)
    none, _ = compiled(torch.ones(()), torch.ones(3))
    assert none.shape == (0,) and compiled.executable is not None


def test_nothing_of_the_users_changes_or_runs_again() -> None:
    module = Rebinds()
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    was, state = x.clone(), torch.get_rng_state()
    captured = capture(module, (x.clone(), y))
    buffer = module.b
    assert rehearse(Running(lambda *a: module.on(*a)), captured, (x, y), {}) is None
    assert torch.equal(x, was) and torch.equal(torch.get_rng_state(), state)
    assert module.b is buffer and not module.b.any()


def test_a_module_that_rebinds_a_buffer_is_called_once_a_call() -> None:
    mine, theirs = Rebinds(), Rebinds()
    f = CompiledFunction(mine, FUSED)
    for i in range(3):
        args = [(torch.full((4, 5), i + 1.0), torch.ones(4, 5)) for _ in range(2)]
        with torch.no_grad():
            torch.testing.assert_close(f(*args[0]), theirs(*args[1]))
        torch.testing.assert_close(mine.b, theirs.b)


def test_a_function_that_fails_it_runs_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "rehearse", lambda *_: Difference("result 0 is elsewhere", True))
    f = CompiledFunction(views, FUSED)
    with pytest.warns(compiling.EagerNotice, match="rehearsal, result 0 is elsewhere"):
        first, whole = f(torch.randn(4, 5))
    assert f.executable is None and first.data_ptr() == whole.data_ptr()
