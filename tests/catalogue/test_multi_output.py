"""Values that are read inside a kernel and returned as well."""

from __future__ import annotations

import torch
from tests.catalogue.harness import check, rand, special


def test_an_intermediate_is_returned() -> None:
    def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        s = x + y
        return s, torch.relu(s) * 2

    check(both, rand(5, 33), rand(5, 33, seed=1))


def test_siblings_read_one_value() -> None:
    def three(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x + 1, x * x, x < 0

    check(three, rand(4, 31))


def test_a_row_and_its_statistics() -> None:
    def moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        m = x.mean(-1, keepdim=True)
        c = x - m
        return c, m, (c * c).sum(-1)

    check(moments, rand(6, 33))


def test_two_rows_that_meet_in_a_sum_are_returned() -> None:
    """Neither row is computed from the other: only the sum, which reads both, gives them one domain."""

    def divergence(z: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        lp = torch.log_softmax(z, -1)
        q = q * 0.9
        return (q * lp).sum(-1), q, lp

    check(divergence, rand(6, 33), rand(6, 33, seed=1))


def test_the_same_value_twice() -> None:
    def twice(x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = x.exp() + 1
        return {"a": y, "b": y}

    check(twice, rand(17))


def test_results_of_several_types() -> None:
    def mixed(x: torch.Tensor) -> list[torch.Tensor]:
        y = x * 3
        return [y.to(torch.float64), y.to(torch.bfloat16), y > 0, y.isnan()]

    check(mixed, special(9, 33))
