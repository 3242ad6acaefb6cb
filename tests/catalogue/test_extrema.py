"""Largest and smallest elements and where they are: ties, NaN, infinities."""

from __future__ import annotations

import pytest
import torch
from tests.catalogue.harness import check, rand, special


def ties() -> torch.Tensor:
    x = rand(12, 100).round()
    x[0] = -float("inf")
    x[1] = float("nan")
    x[2, 40] = float("nan")
    x[3] = float("inf")
    x[4] = 0.0
    x[4, 17] = -0.0
    return x


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return getattr(x * 2, name)(-1) + 1

    check(f, ties())


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_values(name: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return getattr(x * 2, name)(-1, keepdim=True) - x

    check(f, ties())
    check(f, special(9, 33, dtype=torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8], ids=str)
def test_integers(dtype: torch.dtype) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        return y.amin(-1), y.argmax(-1)

    check(f, rand(9, 33, dtype=dtype))


def test_positions_along_the_first_axis() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).argmax(0) * 2

    check(f, ties())


def test_the_greatest_of_a_flattened_tensor() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.t() * 2).argmax() + 1

    check(f, rand(9, 33))
