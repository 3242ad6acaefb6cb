"""Draws of which few decide: luck strikes eager as often."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.unit.verify.test_alone import draw

from fusebound.capture.torch import capture
from fusebound.verify.check import verify
from fusebound.verify.errors import Exact
from fusebound.verify.luck import distinct, is_significant
from fusebound.verify.verdict import CERTAIN, FEWEST, MOST, rule_on_draws


@pytest.mark.parametrize(("most", "least"), [(9, 4), (3, 1), (5, 2), (6, 5)])
@pytest.mark.parametrize("count", [8, 16, 32])
def test_what_is_worse_as_often_as_eager_is_luck(most: float, least: float, count: int) -> None:
    pair = [draw(most, least), draw(least, most)]
    assert not is_significant(pair * count)
    assert not is_significant(pair[:1] * count + pair[1:] * count)
    assert not is_significant(pair[1:] * count + pair[:1] * count)


def test_what_is_worse_more_often_than_chance_has_it_is_none() -> None:
    assert is_significant([draw(5, 4)] * 48 + [draw(4, 5)] * 16)
    assert is_significant([draw(9, 4)] * 14 + [draw(4, 4)] * 20)
    assert not is_significant([draw(9, 4)] * 13 + [draw(4, 4)] * 20)
    assert not is_significant([])


@pytest.mark.parametrize("explained", [True, False])
def test_eager_beside_itself_shows_no_luck(explained: bool) -> None:
    """Where eager stands for the reference its error is 0, and fused is further off on every draw."""
    draws = [replace(draw(5, 0, explained=explained), coarse=True)] * MOST
    ruling, _ = rule_on_draws(draws)
    assert ruling.ok == explained


@pytest.mark.parametrize(("count", "open"), [(FEWEST, True), (CERTAIN - 1, True), (CERTAIN, False)])
def test_what_is_worse_by_more_than_luck_is_settled(count: int, open: bool) -> None:
    """Draws are not added until one of eager's is bad enough."""
    ruling, may_change = rule_on_draws([draw(5, 2, 16, explained=True)] * count)
    assert ruling.verdict == "worse" and may_change == open


def test_draws_of_different_sizes_have_other_parts() -> None:
    assert is_significant([draw(9, 4, count=8), draw(9, 4, count=512)] * 8)


def share(x: torch.Tensor) -> torch.Tensor:
    return x / x.sum(0)


def test_the_reciprocal_of_a_sum_near_zero_is_judged_by_many_draws() -> None:
    """Its error has no variance: one draw decides the rms over all, which is eager's as often."""
    x = torch.randn(7)
    captured = capture(share, (x,))
    sets = ("like", "tiny", "zeros", "peaks")
    assert verify(lambda x: x / x.flip(0).sum(0), captured, (x,), sets=sets).ok
    assert not verify(lambda x: x / x.bfloat16().sum(0), captured, (x,), sets=sets).ok


def test_one_number_that_every_draw_gives_is_one_rounding() -> None:
    """The angle of x to itself is π/4 or -3π/4 in all draws: float32 kernels may give the neighbour of eager's."""

    def angle(x: torch.Tensor) -> torch.Tensor:
        return torch.atan2(x, x).sum(0, dtype=torch.float64)

    def neighbour(x: torch.Tensor) -> torch.Tensor:
        y = torch.atan2(x, x)
        return torch.nextafter(y, torch.zeros_like(y)).sum(0, dtype=torch.float64)

    x = torch.randn(1, 1)
    captured = capture(angle, (x,))
    assert verify(neighbour, captured, (x,), sets=("given", "like")).ok
    assert not verify(lambda x: angle(x) * (1 + 1e-6), captured, (x,), sets=("given", "like")).ok


GIVEN = torch.randn(64, 8, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    ("fn", "fault"),
    [
        (lambda x: x.square().mean(), lambda x, y: y * 1000),
        (lambda x: (x * 2).clamp(max=2.5).sum(), lambda x, y: (x * 2).sum()),
        (lambda x: (x.bfloat16() * 1.3).clamp(max=2.5), lambda x, y: x.bfloat16() * 1.3),
        (lambda x: x.exp() + 1, lambda x, y: y.index_fill(0, torch.tensor([3]), 2.0)),
    ],
)
def test_no_size_of_error_on_few_draws_is_luck(fn: Any, fault: Any) -> None:
    """The program's own sensitivity says how far luck goes."""
    captured = capture(fn, (GIVEN,))

    def faulty(x: torch.Tensor) -> torch.Tensor:
        return fault(x, fn(x)) if torch.equal(x, GIVEN) else fn(x)

    assert not verify(faulty, captured, (GIVEN,), sets=("given", "like")).ok


def test_a_fault_where_the_size_depends_on_the_data() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0] * 1.5

    def faulty(x: torch.Tensor) -> torch.Tensor:
        y = fn(x)
        y[0] *= 1.05
        return y

    x = torch.randn(128).bfloat16()
    assert not verify(faulty, capture(fn, (x,)), (x,), sets=("given", "like")).ok


def test_a_number_that_many_elements_have_is_one_rounding() -> None:
    """Of the others it has to show that a result is worse."""
    bound = torch.tensor(5.0)
    x = 5 + torch.randn(24, generator=torch.Generator().manual_seed(1))

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x.clamp(max=5).exp().sin()

    def off(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
        y = x.clamp(max=5).exp()
        return torch.where(where, y.nextafter(further), y).sin()

    further = (bound.exp().double() - bound.double().exp()).sign().float() * torch.inf
    captured = capture(fn, (x,))
    found = verify(lambda x: off(x, x >= 5), captured, (x,), sets=("given",))
    assert found.ok, found.summary()
    assert not verify(lambda x: off(x, x < 9), captured, (x,), sets=("given",)).ok


def test_the_numbers_that_several_elements_share() -> None:
    exact = torch.tensor([1.0, 2.0, 1.0, 3.0], dtype=torch.float64)
    found = distinct(exact.float() + 1, exact.float(), Exact(exact))
    assert found is not None and (found.once.count, found.once.fused.largest, found.once.value_norm) == (
        2,
        1.0,
        13**0.5,
    )
    assert found.often == ((1.0, 1.0, 0.0),)
    few, many = (torch.arange(n, dtype=torch.float64) for n in (2, 17))
    assert distinct(many.float(), many.float(), Exact(many)) is None
    told = distinct(few.float() + 1, few.float(), Exact(few, torch.full_like(few, 0.5)))
    assert told is not None and told.often == ((0.0, 0.5, 0.5), (1.0, 0.5, 0.5)) and not told.once.count
    coarse = distinct(exact.float() + 1, exact.float(), Exact(exact.float(), coarse=True))
    assert coarse is not None and coarse.often == found.often, "eager's own values stand for the reference"


def test_a_row_that_is_repeated_counts_once() -> None:
    """Each draw has another sum, and all copies of it say whether it is worse."""
    x = torch.randn(4, 64)
    fn = lambda x: torch.cat([x.sum(1, keepdim=True).expand(4, 6), x[:, :1]], 1)  # noqa: E731
    captured = capture(fn, (x,))
    assert verify(fn, captured, (x,), sets=("like",)).ok
    off = torch.tensor([1 + 3 * 2**-23] * 6 + [1.0])
    assert not verify(lambda x: fn(x) * off, captured, (x,), sets=("like",)).ok


def test_one_draw_does_not_hide_what_is_worse_in_all_others() -> None:
    """The reciprocal of a sum near zero: of two poles fused happens to miss the lower one."""
    draws = [draw(60, 4, 16, explained=True)] * 15
    pole = draw(4e5, 4e5, 16)
    ruling, may_change = rule_on_draws([*draws, pole])
    assert ruling.verdict == "worse" and not may_change, ruling
    ruling, may_change = rule_on_draws([*draws[:8], pole])
    assert ruling.ok and may_change, "few draws may be luck"
    assert rule_on_draws([draw(60, 40, 16)] * 14 + [pole])[0].ok
