"""Readers in another axis order, and layouts that are not row-major."""

from __future__ import annotations

import pytest
import torch
from tests.catalogue.harness import check, rand, special


def test_a_transposed_reader() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).t().contiguous() * 2

    check(f, rand(33, 17))


def test_channels_first_to_last() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x).permute(0, 2, 3, 1).contiguous() + 1

    check(f, rand(2, 15, 7, 9))


def test_heads() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 0.5).view(2, 7, 4, 8).transpose(1, 2).contiguous() * 2

    check(f, rand(2, 7, 32))


@pytest.mark.parametrize("perm", [(1, 0), (0, 1)], ids=str)
def test_both_orders_of_one_value(perm: tuple[int, int]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y + y.t().permute(perm).t()

    check(f, rand(17, 17))


def test_strided_inputs() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y).neg() * 3

    big = rand(70, 40)
    check(f, big[1:34, 2:19], rand(17, 33).t())
    check(f, big[::2, ::2][:33, :17], rand(33, 1).expand(33, 17))


def test_a_reduction_over_a_strided_axis() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, -1)

    check(f, special(33, 17).t())
    check(f, rand(4, 33, 17).permute(2, 0, 1))


def test_flip() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).flip(0, 1) - x

    check(f, rand(9, 33))
