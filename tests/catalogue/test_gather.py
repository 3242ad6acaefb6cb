"""Data-dependent reads."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.catalogue.harness import check, rand

import fusebound


def test_embedding() -> None:
    def f(i: torch.Tensor, table: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return F.embedding(i, table) * 2 + position

    check(f, torch.randint(0, 50, (3, 7)), rand(50, 33), rand(7, 33))


@pytest.mark.parametrize("dim", [0, 1])
def test_index_select(dim: int) -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.index_select(x, dim, i).abs() + 1

    check(f, rand(17, 33), torch.tensor([0, 16, 3, 3, 1]))


def test_gather() -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.gather(x, 1, i) * 2 + 1

    check(f, rand(9, 33), torch.randint(0, 33, (9, 17)))


def test_rows_by_index_and_their_norm() -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = x[i] * 2
        return y / y.square().sum(-1, keepdim=True)

    check(f, rand(50, 33), torch.tensor([4, 49, 0]))


def test_an_index_of_32_bits_computed_on_the_way() -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.index_select(x, 0, i + 1) * 2

    check(f, rand(50, 17), torch.tensor([4, 48, 0], dtype=torch.int32))


def test_the_source_is_computed_by_another_kernel() -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = (x * 2).exp() + 1
        return y[i] * 3 - 1

    check(f, rand(50, 17), torch.tensor([4, 49, 0]), refused="F609", kernels=2)


def test_take_along_dim_counts_from_the_end() -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.take_along_dim(x, i, 1) * 2

    check(f, rand(4, 9), torch.tensor([[0, -1, 8, -9]]))


def test_an_index_whose_element_is_dropped_or_overwritten() -> None:
    """Eager raises for it all the same."""

    def dropped(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x.index_select(0, i)[:3] * 2

    def overwritten(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        v = x.index_select(0, i) + 1
        return torch.select_scatter(v, v.select(0, 0), 0, -1) * 2

    def divided(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return (i // (17 - i))[:3] + x[:3]

    for f, error in ((dropped, IndexError), (overwritten, IndexError), (divided, RuntimeError)):
        x, i = rand(17), torch.arange(17)
        compiled = fusebound.compile(f, expected_calls=10**9, hardware="cpu-avx512")
        for _ in range(2):
            assert torch.equal(compiled(x, i), f(x, i))
        i[-1] = 17
        for g in (f, compiled):
            with pytest.raises(error):
                g(x, i)
