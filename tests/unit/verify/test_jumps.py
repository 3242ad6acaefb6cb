"""Floating results next to a jump: which of its sides eager is on is luck."""

from __future__ import annotations

import torch

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


def test_the_reciprocal_of_a_rounding_may_be_infinite() -> None:
    x = torch.tensor(
        [1.0, 2.0**-24, -1.0, 2.0**-25]
    )  # one after the other these add up to 2^-25, in pairs to nothing
    captured = capture(lambda x: x / x.sum(), (x,))
    assert (x / ((x[0] + x[1]) + (x[2] + x[3]))).isinf().any()
    assert verify(lambda x: x / ((x[0] + x[1]) + (x[2] + x[3])), captured, (x,), sets=("given",)).ok
    sums = torch.tensor([1.0, 2.0, 3.0])
    captured = capture(lambda x: x / x.sum(), (sums,))
    assert not verify(lambda x: x / 0, captured, (sums,), sets=("given",)).ok


def picked(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return rows[torch.sigmoid(scores).topk(2).indices]


def test_scores_that_tie_after_a_rounding_may_come_in_either_order() -> None:
    """Eager tells them apart by its roundings, a correctly rounded sigmoid does not."""
    scores = torch.tensor([2.9741, 2.9741 - 2.0**-21, -1.0])
    rows = torch.tensor([[-0.0, 1.0], [0.0, 2.0], [3.0, 3.0]])
    captured = capture(picked, (scores, rows))

    def exchanged(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return picked(scores, rows).flip(0)

    def other(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return picked(scores, rows) + 1

    assert verify(exchanged, captured, (scores, rows), sets=("given",)).ok
    assert not verify(other, captured, (scores, rows), sets=("given",)).ok
