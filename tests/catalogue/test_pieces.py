"""Piecewise readers: cat, stack, pad, slices, rolls, rotary halves, chunks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.catalogue.harness import check, rand, special

from fusebound.capture.torch import capture
from fusebound.engine.build import build
from fusebound.plan.greedy import plan
from fusebound.target import get


@pytest.mark.parametrize("dim", [0, 1])
def test_cat(dim: int) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.cat([x * 2, y - 1, x], dim)) + 1

    other = (5, 33) if dim == 0 else (17, 9)
    check(f, rand(17, 33), rand(*other, seed=1))


def test_stack() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.stack([x + y, x - y], 1) * 0.5

    check(f, rand(9, 17), rand(9, 17, seed=1))


@pytest.mark.parametrize("pads", [(1, 2), (0, 0, 3, 1), (2, 0, 1, 1)], ids=str)
def test_pad(pads: tuple[int, ...]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x * 2, pads, value=0.5).exp()

    check(f, special(5, 33))


def test_sums_over_padded_rows_count_the_padding() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (2, 1, 1, 0), value=3.0).abs().sum(-1)

    check(f, rand(6, 33))


def test_a_value_and_whether_any_of_its_row_is_set() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = F.pad(x, (2, 1, 2, 0), value=-1.0)
        return y.to(torch.float64), torch.any(y > 0, 1)

    check(f, rand(1, 4))


def test_slices() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y[:, 1:] - y[:, :-1]

    check(f, rand(9, 34))


def test_steps() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        return y[..., ::2] * y[..., 1::2]

    check(f, rand(9, 34))


def test_halves_of_a_gate() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return F.silu(a) * b

    check(f, rand(9, 66))


def test_rotary_embedding() -> None:
    def f(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    check(f, rand(2, 3, 5, 32), rand(5, 32), rand(5, 32, seed=1))


@pytest.mark.parametrize("shift", [1, -3])
def test_roll(shift: int) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.roll(x * 2, shift, 1) + x

    check(f, rand(5, 33))


def test_repeats() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).repeat(2, 3) * 2

    check(f, rand(5, 17))


def test_rows_of_several_reductions() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([(x * 2).sum(1), (y * 2).amax(1)], 0) + 1

    check(f, rand(5, 33), rand(7, 33, seed=1))


def test_a_row_and_its_sum_side_by_side() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return torch.cat([y, y.sum(1, keepdim=True)], 1)

    check(f, rand(5, 33))


def test_a_padded_reduction_is_computed_where_it_exists() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x.argmin(0), (2, 1), value=1) * 2

    check(f, rand(127, 31))


def test_a_window_in_the_padding() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (0, 1, 2, 1)).amax(1)[:, 1:] + 1

    check(f, rand(33, 31, 1))


def test_writing_a_slice() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:, 3:17] += 1
        return y.relu()

    check(f, rand(5, 33))


def test_triangles() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tril(x * 2) + torch.triu(x, 1)

    check(f, rand(17, 17))


@pytest.mark.parametrize("strides", [(2, 1), (0, 1)])
def test_a_write_into_a_copy_of_overlapping_memory(strides: tuple[int, int]) -> None:
    """Eager copies the memory, so that the rows of the result overlap as well."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return F.hardtanh(torch.select_scatter(x, x.select(-1, 0) + 7, -1, -1)).sum(-2)

    x = torch.tensor([1, 1, -2, 1, 0, -5, 0, 2], dtype=torch.int32).as_strided((3, 4), strides)
    captured = capture(f, (x,))
    exe = build(plan(captured.graph, target=get("cpu-avx512"), expected_calls=10**9), captured)
    assert torch.equal(exe(x), f(x))
