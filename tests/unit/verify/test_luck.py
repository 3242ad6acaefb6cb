"""Draws of which few decide: luck strikes eager as often."""

from __future__ import annotations

import torch
from tests.unit.verify.test_alone import draw

from fusebound.capture.torch import capture
from fusebound.verify.check import verify
from fusebound.verify.luck import is_significant


def test_what_is_worse_as_often_as_eager_is_luck() -> None:
    assert not is_significant([draw(9, 4), draw(4, 9)] * 16)
    assert is_significant([draw(5, 4)] * 24 + [draw(4, 5)] * 8)
    assert is_significant([draw(9, 4)] * 14 + [draw(4, 4)] * 20)


def test_few_draws_show_nothing() -> None:
    assert not is_significant([draw(9, 4)] * 8 + [draw(4, 4)] * 8)
    assert not is_significant([])


def share(x: torch.Tensor) -> torch.Tensor:
    return x / x.sum(0)


def test_the_reciprocal_of_a_sum_near_zero_is_judged_by_many_draws() -> None:
    """Its error has no variance: one draw decides the rms over all, which is eager's as often."""
    x = torch.randn(7)
    captured = capture(share, (x,))
    sets = ("like", "tiny", "zeros", "peaks")
    assert verify(lambda x: x / x.flip(0).sum(0), captured, (x,), sets=sets).ok
    assert not verify(lambda x: x / x.bfloat16().sum(0), captured, (x,), sets=sets).ok
