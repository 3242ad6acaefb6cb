"""Choices by a condition, and what becomes of bools."""

from __future__ import annotations

import torch
from tests.catalogue.harness import check, rand, special


def test_masked_fill() -> None:
    def f(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return (x * 2).masked_fill(m, -1.0).exp()

    check(f, special(9, 33), rand(33, dtype=torch.bool))


def test_where_discards_nan() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x.log(), -x) * 2

    check(f, special(9, 33))


def test_a_mask_that_is_computed() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        m = (x > 0) & ~(y <= 0.5) | x.isnan()
        return m, torch.where(m, x, y)

    check(f, special(9, 33), special(9, 33, seed=5))


def test_any_and_all() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        m = x > 1
        return torch.any(m, -1), torch.all(~m, -1)

    check(f, special(40, 17))


def test_counting() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x > 0).sum(-1) * 2

    check(f, rand(9, 100))


def test_bool_arithmetic() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y) ^ (x + y) | (x == y)

    check(f, rand(65, dtype=torch.bool), rand(65, dtype=torch.bool, seed=1))


def test_any_of_floats_takes_nan_for_true() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.any(x * 1, -1)

    x = torch.zeros(4, 33)
    x[1, 32], x[2, 0] = float("nan"), -0.0
    x[3, 16] = 1e-45
    check(f, x)
