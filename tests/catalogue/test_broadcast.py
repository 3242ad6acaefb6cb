"""Operands that are smaller than the result, and axes of stride 0."""

from __future__ import annotations

import pytest
import torch
from tests.catalogue.harness import check, rand


def affine(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * w + b)


@pytest.mark.parametrize(
    ("w", "b"),
    [((33,), (33,)), ((1, 33), (17, 1)), ((3, 1, 1), (1,)), ((), (3, 17, 33)), ((17, 1), (1, 1, 33))],
    ids=str,
)
def test_shapes(w: tuple[int, ...], b: tuple[int, ...]) -> None:
    check(affine, rand(3, 17, 33), rand(*w), rand(*b, seed=1))


def test_the_outer_sum() -> None:
    def outer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x[:, None] + y).abs() * 2

    check(outer, rand(31), rand(17))


def test_an_expanded_input() -> None:
    check(affine, rand(1, 33).expand(9, 33), rand(9, 1).expand(9, 33), rand(33))


def test_row_statistics_meet_other_rows() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sum(-1, keepdim=True) * 2 + y

    check(f, rand(9, 33), rand(9, 33, seed=1))


def test_a_total_that_every_element_reads_is_no_part_of_its_readers() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * 2).sum() + y * 3

    check(f, rand(5, 7), rand(4, 9), refused="F501", kernels=2)
