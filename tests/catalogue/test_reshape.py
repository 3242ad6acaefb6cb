"""Reshapes that factor over the loops, and those that do not."""

from __future__ import annotations

import torch
from tests.catalogue.harness import check, rand


def test_an_axis_is_split() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).reshape(9, 3, 11)
        return y / (y.abs().sum(-1, keepdim=True) + 1)

    check(f, rand(9, 33))


def test_axes_are_merged() -> None:
    def f(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (x + 1).flatten(1) * b

    check(f, rand(5, 3, 11), rand(33))


def test_there_and_back() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ((x * 2).view(6, 4, 8) * w[:, None]).view(6, 32) + x

    check(f, rand(6, 32), rand(4))


def test_axes_of_one_element() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return ((x + 1)[:, None, :, None] * 2).squeeze()

    check(f, rand(7, 33))


def test_factors_that_do_not_divide_one_another() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x * 2).reshape(6, 4) + w

    check(f, rand(4, 6).t().contiguous().t(), rand(6, 4), refused="F502")
