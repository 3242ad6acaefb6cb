"""Operators whose result jumps see the very number that eager would have rounded: the same branch, the same bin."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.catalogue.harness import FOREVER, PLANNED_FOR, rand

from fusebound.engine.compile import CompiledFunction, Options, compile

HALF = (torch.bfloat16, torch.float16)
Fn = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

JUMPS: dict[str, Fn] = {
    "floor": lambda x, y: torch.floor(x * y),
    "ceil": lambda x, y: torch.ceil(x * y),
    "round": lambda x, y: torch.round(x * y * 2),
    "trunc": lambda x, y: torch.trunc(x * y),
    "sign": lambda x, y: torch.sign(x * 3 - y * 3),
    "remainder": lambda x, y: (x * y) % 0.25,
    "fmod": lambda x, y: torch.fmod(x * y, 0.25),
    "floor division": lambda x, y: (x * y) // 0.125,
    "greater": lambda x, y: (x * y + x) > 0.5,
    "equal": lambda x, y: (x * y + x) == (y * x + x * 1.0),
    "where": lambda x, y: torch.where(x * y >= x * x, x, -y),
    "argmax": lambda x, y: (x * y).argmax(-1),
    "argmin": lambda x, y: (x * y + y).argmin(-1),
    "cast to int": lambda x, y: (x * y * 8).to(torch.int32),
    "cast to the other half type": lambda x, y: (
        (x * y).to(torch.float16 if x.dtype == torch.bfloat16 else torch.bfloat16).float() * 2
    ),
    "cast back to a half type": lambda x, y: ((x * y).float() * 3).to(x.dtype),
    "ties of a maximum": lambda x, y: ((x * y) == (x * y).amax(-1, keepdim=True)).sum(-1),
    "share of a tied maximum": lambda x, y: (
        ((x * y) == (x * y).amax(-1, keepdim=True)).to(x.dtype)
        / ((x * y) == (x * y).amax(-1, keepdim=True)).sum(-1, keepdim=True)
    ),
    "int8 quantization": lambda x, y: torch.round(x * y / 0.05).clamp(-128, 127).to(torch.int8),
    "dequantized": lambda x, y: (
        torch.round((x + y) / 0.05).clamp(-128, 127).to(torch.int8).to(x.dtype) * 0.05
    ),
    "mask of a threshold": lambda x, y: (x * y).masked_fill((x * y).abs() < 0.1, 0),
    "relu of a difference of squares": lambda x, y: torch.heaviside(x * x - y * y, x),
}


def made(fn: Fn) -> CompiledFunction:
    return compile(fn, Options(contest=False, expected_calls=FOREVER, hardware=PLANNED_FOR))


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", JUMPS)
def test_a_jump_in_the_kernel_is_eagers(name: str, dtype: torch.dtype) -> None:
    fn = JUMPS[name]
    x, y = rand(64, 129, dtype=dtype), rand(64, 129, dtype=dtype, seed=1)
    x[:, ::7] = x[:, :1]  # ties
    y[:, ::7] = y[:, :1]
    f = made(fn)
    got = f(x, y)
    if name not in ("relu of a difference of squares",):
        assert f.plan is not None and any(len(g.users) > 1 for g in f.plan.kernels)
    assert torch.equal(got, fn(x, y))


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_bins(dtype: torch.dtype) -> None:
    """bucketize has no kernel: what it reads is stored, and so rounded. (Roundings before that may vanish: the rule
    asks for a jump that is reachable inside the kernel.)"""
    edges = torch.linspace(-2, 2, 33).to(dtype)

    def bins(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.bucketize(x * y, edges) + 1

    x, y = rand(64, 129, dtype=dtype), rand(64, 129, dtype=dtype, seed=1)
    assert torch.equal(made(bins)(x, y), bins(x, y))


@pytest.mark.parametrize("eight", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_eight_bit_floats(eight: torch.dtype) -> None:
    def quantized(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((x * y).clamp(-400, 400) * 4).to(eight).float() / 4

    for dtype in (torch.float32, torch.bfloat16):
        x, y = rand(64, 129, dtype=dtype), rand(64, 129, dtype=dtype, seed=1)
        assert torch.equal(made(quantized)(x, y), quantized(x, y))


@pytest.mark.parametrize("narrow", HALF, ids=str)
@pytest.mark.parametrize("numerics", ["accurate", "eager"])
def test_a_round_trip_through_a_narrow_type_is_kept(narrow: torch.dtype, numerics: str) -> None:
    def trip(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y).to(narrow).float() - x * y

    x, y = rand(64, 129), rand(64, 129, seed=1)
    options = Options(contest=False, expected_calls=FOREVER, hardware=PLANNED_FOR, numerics=numerics)
    f = compile(trip, options)
    got = f(x, y)
    assert f.plan is not None and [len(g.users) for g in f.plan.kernels if len(g.users) > 1]
    assert torch.equal(got, trip(x, y))
    assert bool((got != 0).any())
