"""Draws judged one by one: what many draws average away, and what is luck."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fusebound.capture.torch import capture
from fusebound.verify.alone import worst_draw
from fusebound.verify.check import verify
from fusebound.verify.errors import Errors, Exact, measure, pooled
from fusebound.verify.tolerance import rule

STEP = 2.0**-23


def draw(fused: float, eager: float, count: int = 512, explained: bool = False) -> Errors:
    """Results whose rms errors are so many ULP, and whether roundings explain as much."""
    exact = torch.full((count,), 1.5, dtype=torch.float64)
    mine, theirs = ((exact + n * STEP).float() for n in (fused, eager))
    return replace(measure(mine, theirs, Exact(exact)), explained=explained)


def test_one_bad_draw_is_seen_among_many_good_ones() -> None:
    draws = [draw(4, 4)] * 15 + [draw(8, 4)]
    assert rule(pooled(draws)).ok
    share, text = worst_draw(draws)
    assert share == 8 / 5 and text == "rms error 8 ULP on one draw, eager 4, limit 5"


def test_eager_s_luck_on_one_draw_is_no_fault() -> None:
    assert worst_draw([draw(4, 4)] * 15 + [draw(4, 1)])[0] < 1
    assert worst_draw([draw(8, n) for n in (1, 2, 4, 8) * 4])[0] < 1


def test_few_draws_say_nothing_and_what_roundings_explain_is_no_fault() -> None:
    assert worst_draw([draw(8, 4)] * 7) == (0.0, "")
    assert worst_draw([draw(4, 4, 16)] * 15 + [draw(8, 4, 16)])[0] > 1
    assert worst_draw([draw(4, 4, 16)] * 15 + [draw(8, 4, 16, explained=True)])[0] == 1
    assert worst_draw([draw(4, 4)] * 15 + [draw(8, 4, explained=True)])[0] > 1


def centred(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(0)) * 2


def normed(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[1:])


@pytest.mark.parametrize("fn", [centred, normed])
@pytest.mark.parametrize("shape", [(33, 2), (64, 3)])
def test_another_order_of_a_sum_is_no_fault(
    fn: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...]
) -> None:
    """Eager against itself on rows or columns in another order: whole columns and rows share one error."""
    x = torch.randn(shape)
    captured = capture(fn, (x,))
    flip = (1,) if fn is normed else (0,)
    failed = 0
    for seed in range(10):
        sets = ("like", "wide range")
        failed += not verify(lambda t: fn(t.flip(flip)).flip(flip), captured, (x,), sets=sets, seed=seed).ok
    assert failed <= 2
