"""A → B → C: every operator has one reader."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.catalogue.harness import check, rand, special

SIZES = [(1,), (15,), (16,), (17,), (31, 33), (3, 127), (2, 1, 5)]


def arithmetic(x: torch.Tensor) -> torch.Tensor:
    return (x * 2 - 1).abs().neg() + 0.5


def gelu_chain(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x * 0.5) * 2


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_sizes_around_the_vector_width(shape: tuple[int, ...]) -> None:
    check(arithmetic, rand(*shape))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_float_types(dtype: torch.dtype) -> None:
    check(gelu_chain, rand(33, 17, dtype=dtype))


def test_special_values() -> None:
    check(arithmetic, special(64, 33))
    check(gelu_chain, special(64, 33))


def test_a_scalar_tensor() -> None:
    check(arithmetic, rand())


def test_long_chain() -> None:
    def powers(x: torch.Tensor) -> torch.Tensor:
        for k in range(40):
            x = x * 0.9 + k % 3
        return x

    check(powers, rand(5, 33))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_every_rounding_of_eager(dtype: torch.dtype) -> None:
    def rounded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((x * y + x) / (y.abs() + 1) - x * 3).abs()

    x, y = special(33, 17, dtype=dtype), rand(33, 17, dtype=dtype, seed=1)
    compiled = check(rounded, x, y, numerics="eager")
    got, want = compiled(x, y), rounded(x, y)
    assert torch.equal(got.nan_to_num(7.0), want.nan_to_num(7.0))
