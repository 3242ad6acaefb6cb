"""What the rehearsal of a first call tells apart, and that it leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusebound as fb
from fusebound.capture.torch import capture
from fusebound.engine import compile as compiling
from fusebound.engine.rehearsal import rehearse

Fn = Callable[..., Any]


def views(x: torch.Tensor) -> Any:
    y = x * 2 + 1
    return y[:2], y


def update(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2).add_(y)
    return x


def fails(x: torch.Tensor) -> Any:
    raise ValueError(str(x.shape))


OTHERWISE: list[tuple[Fn, str]] = [
    (lambda x: ((x * 2 + 1)[:2], x * 2 + 1), "result 1"),
    (lambda x: (views(x)[0], views(x)[0]), "result 1"),
    (lambda x: tuple(t.double() for t in views(x)), "result 0"),
    (lambda x: ((y := (x.t().contiguous() * 2 + 1).t())[:2], y), "strides (1, 4)"),
    (lambda x: views(x)[:1], "gives 2 values"),
    (fails, "raises ValueError"),
]


@pytest.mark.parametrize(("other", "words"), OTHERWISE)
def test_other_layouts_are_named(other: Fn, words: str) -> None:
    x = torch.randn(4, 5)
    captured = capture(views, (x,))
    assert rehearse(views, captured, (x,), {}) == ""
    assert words in rehearse(other, captured, (x,), {})


def test_arguments_and_the_generator_are_put_back() -> None:
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    was, state = x.clone(), torch.get_rng_state()
    captured = capture(update, (x.clone(), y))
    assert rehearse(lambda x, y: update(x, y * torch.rand(5)), captured, (x, y), {}) == ""
    assert torch.equal(x, was) and torch.equal(torch.get_rng_state(), state)
    assert "result 0" in rehearse(lambda x, y: update(x, y).clone(), captured, (x, y), {})


def test_a_function_that_fails_it_runs_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "rehearse", lambda *_: "result 0 is elsewhere")
    f = fb.compile(views)
    with pytest.warns(compiling.EagerNotice, match="not be laid out as eager's: result 0 is elsewhere"):
        first, whole = f(torch.randn(4, 5))
    assert f.executable is None and first.data_ptr() == whole.data_ptr()
