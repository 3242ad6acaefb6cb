"""Mixed and exact element types: promotion, casts, integer division, shifts, wrapping."""

from __future__ import annotations

import pytest
import torch
from tests.catalogue.harness import check, rand, special

INTEGERS = [torch.int64, torch.int32, torch.int8, torch.uint8]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_arithmetic(dtype: torch.dtype) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y + 100) * 3 - (x & y) + (x ^ 5)

    check(f, rand(5, 33, dtype=dtype), rand(5, 33, dtype=dtype, seed=1))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division(dtype: torch.dtype) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x // y, x % y, torch.div(x, y, rounding_mode="trunc")

    divisors = rand(5, 33, dtype=dtype, seed=1)
    check(f, rand(5, 33, dtype=dtype), torch.where(divisors == 0, 7, divisors).to(dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8], ids=str)
def test_shifts(dtype: torch.dtype) -> None:
    def f(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return (x << n) + (x >> n)

    check(f, rand(9, 17, dtype=dtype), rand(9, 17, dtype=torch.uint8).to(dtype) % 7)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_promotion(dtype: torch.dtype) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y) * 0.5 + 1

    check(f, rand(5, 33, dtype=dtype), rand(5, 33, seed=1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_casts_that_the_user_wrote_round(dtype: torch.dtype) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 3).to(dtype).to(torch.float32) - x * 3

    check(f, rand(9, 33))


def test_float_to_integer_truncates() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 10).to(torch.int32) + 1

    check(f, rand(9, 33))


def test_integer_sums_widen() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sum(-1) + 1

    check(f, rand(5, 300, dtype=torch.int8).clamp(0))


def test_mean_of_halves_accumulates_wide() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).mean(-1) + 1

    check(f, rand(5, 1000, dtype=torch.bfloat16) + 100)


def test_true_division_of_integers() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x / y + 1

    check(f, rand(9, 33, dtype=torch.int64), rand(9, 33, dtype=torch.int32, seed=1))


@pytest.mark.parametrize("name", ["floor", "ceil", "round", "trunc", "sign", "frac"])
def test_rounding(name: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return getattr(torch, name)(x * 4) + 1

    check(f, special(20, 33))


def test_the_sign_of_a_bool_is_itself() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.sinh()
        return (~(y > 2)).sign(), y.softmax(0)

    check(f, torch.linspace(-1, 3, 40).reshape(8, 5))
