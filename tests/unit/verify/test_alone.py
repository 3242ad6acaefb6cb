"""Draws judged one by one: what many draws average away, and what is luck."""

from __future__ import annotations

import torch

from fusebound.verify.alone import worst
from fusebound.verify.errors import Errors, Exact, measure, pooled
from fusebound.verify.tolerance import rule

STEP = 2.0**-23


def draw(fused: float, eager: float, count: int = 512) -> Errors:
    """Results whose rms errors are so many ULP."""
    exact = torch.full((count,), 1.5, dtype=torch.float64)
    mine, theirs = ((exact + n * STEP).float() for n in (fused, eager))
    return measure(mine, theirs, Exact(exact))


def test_one_bad_draw_is_seen_among_many_good_ones() -> None:
    draws = [draw(4, 4)] * 15 + [draw(8, 4)]
    assert rule(pooled(draws)).ok
    share, text = worst(draws)
    assert share > 1.4 and text.startswith("rms error 9.54e-07 on one draw, eager 4.77e-07")


def test_eager_s_luck_on_one_draw_is_no_fault() -> None:
    assert worst([draw(4, 4)] * 15 + [draw(4, 1)])[0] < 1
    assert worst([draw(2, 0)])[0] == 1


def test_few_elements_say_nothing_and_few_rows_little() -> None:
    assert worst([draw(8, 4, count=16)]) == (0.0, "")
    draws = [draw(4, 4)] * 15 + [draw(8, 4)]
    assert worst(draws, together=128)[0] < 1


def test_a_draw_hangs_on_its_large_elements() -> None:
    exact = torch.full((512,), 1.5, dtype=torch.float64)
    exact[0] = 2.0**20
    assert 1 <= measure(exact.float(), exact.float(), Exact(exact)).whole.weighty < 1.01
    assert draw(1, 1).whole.weighty == 512
