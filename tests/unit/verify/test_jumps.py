"""Floating results next to a jump: which of its sides eager is on is luck."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusebound.capture.torch import capture
from fusebound.verify.check import verify
from fusebound.verify.jumps import on_jump

EXACT = torch.linspace(1.0, 2.0, 8, dtype=torch.float64)


def test_where_a_jump_leads_to_is_no_worse_and_elsewhere_is() -> None:
    other = EXACT.clone()
    other[3] = 40.0
    fused = EXACT.float()
    fused[3], fused[5] = 40.000004, 40.0
    assert on_jump(fused, EXACT, [EXACT, other]).nonzero().tolist() == [[3]]
    assert not on_jump(torch.full((8,), 20.0), EXACT, [other]).any()


def test_a_class_and_the_sign_of_a_zero_jump_too() -> None:
    exact = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
    other = torch.tensor([-0.0, float("inf"), float("nan")], dtype=torch.float64)
    assert on_jump(other.float(), exact, [other]).all()
    assert not on_jump(other.flip(0).float(), exact, [other])[0]


def test_what_moves_like_everything_else_lies_on_no_jump() -> None:
    """Differences of nearly equal numbers move by any number of ULP, all of them."""
    exact = torch.linspace(1e-9, 2e-9, 8, dtype=torch.float64)
    other = exact + 1e-7
    assert not on_jump(other.float(), exact, [other]).any()


def test_next_to_a_pole_an_infinity_is_as_good_as_what_roundings_make_of_it() -> None:
    """x / |x| is 1 but for a rounding, and log1p(-1) is infinite."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.log1p(F.rms_norm(x, (1,)))

    def exactly(x: torch.Tensor) -> torch.Tensor:
        return torch.log1p(x.sign())

    x = torch.linspace(-9, 9, 40)[:, None] * 0.37
    assert verify(exactly, capture(fn, (x,)), (x,), sets=("given",)).ok


def picked(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return rows[torch.sigmoid(scores).topk(2).indices]


def test_scores_that_tie_after_a_rounding_may_come_in_either_order() -> None:
    """Eager tells them apart by its roundings, a correctly rounded sigmoid does not."""
    scores = torch.tensor([2.9741, 2.9741 - 2.0**-21, -1.0])
    rows = torch.tensor([[-0.0, 1.0, 8.0, 5.0], [0.0, 2.0, 7.0, -1.0], [3.0, 3.0, 3.0, 3.0]])
    captured = capture(picked, (scores, rows))

    def exchanged(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return picked(scores, rows).flip(0)

    def other(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return picked(scores, rows) + 1

    assert verify(exchanged, captured, (scores, rows), sets=("given",)).ok
    assert not verify(other, captured, (scores, rows), sets=("given",)).ok


def test_a_whole_output_may_jump() -> None:
    """The row of the largest mean, two of which differ by less than their roundings."""
    rows = torch.randn(2, 9, generator=torch.Generator().manual_seed(1))
    means = torch.cat((rows[:1], rows[:1].flip(1)))

    def fn(means: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return rows[means.mean(-1).argmax()]

    def other(means: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return rows[1 - means.mean(-1).argmax()]

    captured = capture(fn, (means, rows))
    assert verify(other, captured, (means, rows), sets=("given",)).ok


@pytest.mark.parametrize(
    ("fn", "fault"),
    [
        (lambda h: h * (F.max_pool2d(h, 3, 1, 1) == h), lambda h: torch.zeros_like(h)),
        (lambda h: h * (F.max_pool2d(h, 3, 1, 1) == h), lambda h: h * (F.max_pool2d(h, 5, 1, 2) == h)),
        (lambda h: torch.where((h > 0).float().sum(-1, True) >= 3, h, -h),
         lambda h: torch.where((h > 0).float().sum(-1, True) > 3, h, -h)),
        (lambda h: h.round().argmax(-1), lambda h: h.shape[-1] - 1 - h.round().flip(-1).argmax(-1)),
        (lambda h: h * 3.3 - (h + 1e-6) * 3.3, lambda h: torch.full_like(h, float("inf"))),
    ],
)  # fmt: skip
def test_what_no_order_of_evaluation_moves_lies_on_no_jump(fn: Any, fault: Any) -> None:
    """Maxima, counts, and numbers that only cancel."""
    h = torch.randn(1, 1, 9, 11, generator=torch.Generator().manual_seed(2))
    assert not verify(fault, capture(fn, (h,)), (h,), sets=("given", "like")).ok


def test_beside_a_pole_only_large_numbers_are_excused() -> None:
    ordinary = torch.full((7,), 3.0)
    for pole, other, cases in (
        (math.inf, 1e8, {0.0: False, 42.0: False, 9e7: True}),
        (1e9, 1e7, {0.0: False, -1e7: False, 1e7: True}),
    ):
        for mine, excused in cases.items():
            exact, moved = (torch.cat([ordinary, torch.tensor([n])]).double() for n in (pole, other))
            moved[:7] += 1e-6
            assert on_jump(torch.cat([ordinary, torch.tensor([mine])]), exact, [moved])[7] == excused, mine


def test_elements_that_nothing_moves_do_not_say_what_is_far() -> None:
    """Of a result that is mostly zeros the others move as much as they do."""
    exact = torch.cat([torch.zeros(9), torch.full((3,), 1e-3)]).double()
    moved = exact + torch.cat([torch.zeros(9), torch.full((3,), 0.1)]).double()
    assert not on_jump((exact + (moved - exact) * 1.05).float(), exact, [moved]).any()
