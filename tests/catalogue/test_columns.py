"""Reductions over an axis that is not the innermost."""

from __future__ import annotations

import torch
from tests.catalogue.harness import check, rand, special


def test_column_means_are_removed() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(0)) * 2

    check(f, rand(100, 33))
    check(f, rand(3, 17))


def test_bias_gradient() -> None:
    def f(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (g * (x > 0)).sum(0)

    check(f, rand(65, 33), rand(65, 33, seed=1))


def test_the_middle_axis() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).amax(1) + 1

    check(f, special(4, 9, 17))


def test_several_axes() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid((x + 1).mean((2, 3), keepdim=True)) * x

    check(f, rand(2, 5, 7, 9))


def test_outer_and_inner_axes() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sum((0, 2)) + 1

    check(f, rand(5, 17, 9))


def test_everything() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((x - y) ** 2).mean() * 0.5

    check(f, rand(33, 17), rand(33, 17, seed=1))


def test_rows_and_columns_are_two_kernels() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x * 2).exp() + 1
        return y.sum(0), y.sum(1)

    check(f, rand(9, 33), refused="F503")


def test_rows_of_different_lengths_share_no_loops() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * 2).sum(1) + (y * 2).sum(1)

    check(f, rand(4, 8), rand(4, 16), refused="F503", kernels=2)


def test_a_reduction_of_a_reduction() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.any(x * 2 > 1, 1, keepdim=True).to(torch.float32).sum(1) + 1

    check(f, rand(64, 32, 2), refused="F503", kernels=2)
