"""Normalizations with what stands before and after them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.catalogue.harness import FOREVER, PLANNED_FOR, check, rand, special

from fusebound.capture.torch import capture
from fusebound.engine.build import build
from fusebound.plan.greedy import plan
from fusebound.target import get
from fusebound.verify.check import verify
from fusebound.verify.inputs import GIVEN

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layer_norm(dtype: torch.dtype) -> None:
    def f(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.silu(F.layer_norm(x + y, (33,), w, b))

    check(f, *(rand(*s, dtype=dtype, seed=i) for i, s in enumerate([(7, 33), (7, 33), (33,), (33,)])))


def test_layer_norm_of_a_large_mean() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x * 1.5, (257,))

    check(f, rand(5, 257) + 1e4)
    check(f, special(50, 257))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rms_norm(dtype: torch.dtype) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (33,), w, 1e-6) * 2

    check(f, rand(7, 33, dtype=dtype), rand(33, dtype=dtype))


def test_rms_norm_written_out() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    check(f, rand(7, 127), rand(127))


@pytest.mark.parametrize("shape", [(2, 8, 5, 7), (1, 16, 3), (3, 8, 4, 4)], ids=str)
def test_group_norm(shape: tuple[int, ...]) -> None:
    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.silu(F.group_norm(x, 4, w, b))

    check(f, rand(*shape), rand(shape[1]), rand(shape[1], seed=1))


@pytest.mark.parametrize("seed", range(3))
def test_group_norm_of_three_elements_in_float64(seed: int) -> None:
    """One row may come out farther from long double than eager's (a sample of `op_db` does); of a thousand the rule
    holds."""

    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.group_norm(x, 1, w, b).neg()

    g = torch.Generator().manual_seed(seed)
    args = tuple(torch.rand(*s, dtype=torch.float64, generator=g) * 18 - 9 for s in ((1000, 3), (3,), (3,)))
    captured = capture(f, args)
    made = plan(captured.graph, target=get(PLANNED_FOR), expected_calls=FOREVER)
    assert len(made.groups) == 1
    found = verify(build(made, captured, threads=1), captured, args, sets=(GIVEN,))
    assert found.ok and not found.notes, found


def test_the_variance_of_pairs_in_float64() -> None:
    """What is squared is rounded once."""
    x = rand(20_000, 2, dtype=torch.float64)
    got = check(lambda x: x.var(-1) * 2, x)(x)
    exact = (x.numpy().astype(np.longdouble)[:, 0] - x.numpy()[:, 1]) ** 2
    assert np.sqrt(((got.numpy() / exact - 1) ** 2).mean()) < 1e-16


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_batch_norm_at_inference(layout: torch.memory_format) -> None:
    def f(
        x: torch.Tensor, m: torch.Tensor, v: torch.Tensor, w: torch.Tensor, b: torch.Tensor
    ) -> torch.Tensor:
        return F.relu(F.batch_norm(x, m, v, w, b))

    x = rand(2, 17, 5, 3).to(memory_format=layout)
    check(f, x, rand(17), rand(17).abs() + 0.1, rand(17, seed=1), rand(17, seed=2))


def test_l2_normalize() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.normalize(x + 1, dim=-1)

    check(f, rand(9, 33))


def test_standardize() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)

    check(f, rand(9, 33))


def test_the_norm_of_single_elements() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.normalize(x, dim=-1) * 2

    check(f, special(60, 1))


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, -1.0]).repeat(10)], ids=["plain", "weight"])
def test_a_missing_bias_is_a_zero_that_is_added(weight: torch.Tensor | None) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (20,), weight) * 2

    x = torch.zeros(3, 20)
    x[1], x[2] = -0.0, 7.0
    f_compiled = check(f, x)
    assert not torch.signbit(f_compiled(x)).any()


def test_cosine_similarity_of_scalars() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cosine_similarity(x, y, dim=0) * 2

    check(f, torch.tensor(3.0), torch.tensor(-2.0))


def test_statistics_that_a_batch_norm_returns() -> None:
    def f(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(t * 2 for t in torch.native_batch_norm(x, None, None, m, v, False, 0.1, 1e-5))

    check(f, rand(2, 5, 3), rand(5), rand(5).abs() + 0.1, refused="F610", kernels=0)


@pytest.mark.parametrize("row", [37, 192, 768, 3072])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_equal_values_are_centred_to_nothing(row: int, dtype: torch.dtype) -> None:
    """The mean of equal values is that value, which a rounded sum, divided, need not be."""

    def norm(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return F.layer_norm(x, (row,)) * 2, x.var(-1) * 2

    x = (rand(64, 1).to(dtype) * 1000 / 3).expand(64, row).contiguous()
    assert not any(t.any() for t in check(norm, x)(x))


@pytest.mark.parametrize("size", [1e-30, 1e19, 3e19, 1e30])
@pytest.mark.parametrize("dim", [-1, 0])
def test_deviation_where_squares_leave_float32(size: float, dim: int) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        s = x + y
        return s.var(dim), s.std(dim), *torch.var_mean(s, dim, correction=0)

    check(f, rand(7, 83) * size, rand(7, 83, seed=1) * size)
