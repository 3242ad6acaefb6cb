"""Softmax and its relatives: reductions chained over one row."""

from __future__ import annotations

import pytest
import torch
from tests.catalogue.harness import check, rand, special


def scaled(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 0.125, -1)


@pytest.mark.parametrize("row", [1, 2, 15, 16, 17, 33, 127, 1000])
def test_rows(row: int) -> None:
    check(scaled, rand(5, row))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_types(dtype: torch.dtype) -> None:
    check(scaled, rand(5, 33, dtype=dtype))


def test_special_values_and_rows_without_a_number() -> None:
    x = special(40, 33)
    x[0] = -float("inf")
    x[1] = float("inf")
    x[2] = float("nan")
    check(scaled, x)


def test_masked_rows() -> None:
    def attention(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax((x * 0.5).masked_fill(mask, -float("inf")), -1)

    mask = rand(9, 33, dtype=torch.bool)
    mask[0] = True
    check(attention, rand(9, 33), mask)


def test_log_softmax() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return -torch.log_softmax(x + 1, -1)

    check(loss, rand(5, 65))
    check(loss, rand(5, 65) * 200)


def test_an_axis_that_is_not_the_last() -> None:
    def columns(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, 0) + 1

    check(columns, rand(33, 17))


def test_logsumexp() -> None:
    def energy(x: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(x * 2, -1) + 1

    check(energy, rand(9, 33))


def test_cross_entropy_of_every_row() -> None:
    def nll(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        logp = torch.log_softmax(x * 2, -1)
        return -logp.gather(1, t[:, None])[:, 0]

    check(nll, rand(9, 33), torch.arange(9), refused="F609", kernels=2)
