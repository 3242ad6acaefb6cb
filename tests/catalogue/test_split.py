"""Few long rows, cut into chunks: kernels of several phases."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.catalogue.harness import check, compare, one_kernel, rand, special

from fusebound.capture.torch import capture
from fusebound.codegen.build import compile_group
from fusebound.target import get

N = (1 << 17) + 77


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 2, -1)


def standardized(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean()) / x.std()


def group_norm(x: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x + 1, 1)


def statistics(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    return y, y.sum(), y.amax(), y.argmax(), y.argmin(), (y > 100).any(), (y < 100).all()


def columns(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(0)) * torch.rsqrt(x.var(0) + 1e-5)


def parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.sum((0, 2), keepdim=True)
    return x / y, y * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("fn", "shape", "wanted"),
    [
        (softmax, (N,), 3),
        (softmax, (3, N), 3),
        (softmax, (N, 1), 1),
        (standardized, (301, 1001), 3),
        (group_norm, (1, 32, 64, 65), 3),
        (statistics, (N,), 2),
        (columns, (5001, 70), 3),
        (columns, (9000, 16), 3),
        (parts, (700, 7, 33), 2),
        (parts, (5, 3, 20_001), 2),
    ],
)
def test_few_long_rows(
    fn: Callable[..., object], shape: tuple[int, ...], wanted: int, dtype: torch.dtype
) -> None:
    x = rand(*shape, dtype=dtype)
    captured = capture(fn, (x,))
    for threads in (1, 2, 3):
        compare(captured, (x,), one_kernel(captured, (x,), threads=threads))
    kernel = compile_group(captured.graph, [n.id for n in captured.graph.nodes], get("host"), name="all")
    assert len(kernel.program.phases) >= wanted and (wanted > 1) == bool(kernel.program.parts)


@pytest.mark.parametrize("threads", [2, 5])
def test_bits_do_not_depend_on_threads(threads: int) -> None:
    x = rand(N)
    captured = capture(standardized, (x,))
    (one,), (many,) = (one_kernel(captured, (x,), threads=t).results for t in (1, threads))
    assert torch.equal(one, many)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
def test_integers(dtype: torch.dtype) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x * 3).sum(), (x * 3).amax(), x.any(), x.all()

    x = torch.arange(N).remainder(101).to(dtype)
    check(f, x)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0])
@pytest.mark.parametrize("at", [0, 70_000, N - 1])
def test_one_special_value(at: int, value: float) -> None:
    x = torch.full((N,), -0.0)
    x[at] = value

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 1
        return y.sum(), y.amax(), y.amin(), y.argmax(), torch.softmax(y, 0)

    check(f, x)


def test_special_values_of_all_kinds() -> None:
    check(statistics, special(N))


def test_in_place_after_a_phase_that_reads_everything() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.sub_(x.amax()).exp_()
        return x.div_(x.sum())

    check(f, rand(N))


def test_dropped_elements_are_the_same_in_each_phase() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(x, 0.5)
        return y / y.sum()

    x = torch.ones(N)
    captured = capture(f, (x,))
    torch.manual_seed(3)
    (y,) = one_kernel(captured, (x,), threads=2).results
    assert float(y.sum()) == pytest.approx(1, abs=1e-4) and len(y.unique()) == 2
