"""Parameters of channels, prepared once before the loop over pixels or rows: batch norms, gates, weights plus one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.catalogue.harness import check, rand, special

LAYOUTS = [torch.contiguous_format, torch.channels_last]


def batch_norm(
    x: torch.Tensor, m: torch.Tensor, v: torch.Tensor, w: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    return F.relu(F.batch_norm(x, m, v, w, b, False))


def gate(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return x * g.sigmoid() + g


def scaled(x: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    s = g.exp().clamp(max=9)
    return x * s.tanh(), x - s


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("channels", [1, 7, 16, 35, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_batch_norm(dtype: torch.dtype, channels: int, layout: torch.memory_format) -> None:
    x = rand(3, channels, 7, 7, dtype=dtype).to(memory_format=layout)
    m, v, w, b = (rand(channels, dtype=dtype, seed=i) for i in range(4))
    check(batch_norm, x, m, v.abs() + 0.1, w, b)


def test_blocks_of_channels_that_are_no_whole_vectors() -> None:
    parameters = [rand(64, seed=i).abs() + 0.1 for i in range(4)]
    check(batch_norm, rand(2, 64, 28, 28), *parameters)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("fn", [gate, scaled])
@pytest.mark.parametrize("size", [1, 3, 7, 40])
def test_gates(fn: Callable[..., torch.Tensor], layout: torch.memory_format, size: int) -> None:
    x = rand(2, 37, size, size).to(memory_format=layout)
    check(fn, x, rand(2, 37, 1, 1, seed=1))
    check(fn, x, rand(1, 37, 1, 1, seed=2))


def test_special_values_in_a_gate() -> None:
    check(gate, rand(1, 96, 7, 7), special(1, 96).reshape(1, 96, 1, 1))


def test_weights_of_a_norm() -> None:
    """A chain along the row itself, which every row recalls, in both passes."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        s = w.exp().tanh()
        return F.rms_norm(x * s, (83,)) * (1 + s) + s.sqrt()

    check(f, rand(9, 83), rand(83, seed=1))


def test_a_mask_of_channels() -> None:
    def f(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return torch.where(g.exp().sin() > 0.3, x, -x)

    check(f, rand(9, 5, 49), rand(5, 1, seed=1))
    check(f, rand(90, 83), rand(83, seed=1))
    check(f, rand(90, 83), rand(90, 1, seed=1))
