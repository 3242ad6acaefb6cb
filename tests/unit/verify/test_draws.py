"""Functions that draw random numbers are verified three ways on the same draws, in both numerics."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fusebound as fb
from fusebound.capture.torch import capture
from fusebound.engine.build import build
from fusebound.plan.greedy import plan
from fusebound.target import get
from fusebound.verify.check import verify
from fusebound.verify.result import VerifyResult


def block(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(r + F.dropout(x, 0.1, True), (33,), w)


def noise(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x + torch.randn_like(x) * 0.1) * torch.rand(33, dtype=x.dtype) + torch.empty_like(r).normal_(1, 2)


@pytest.mark.parametrize("fn", [block, noise])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("numerics", ["accurate", "eager"])
def test_the_same_draws_three_ways(fn: Any, dtype: torch.dtype, numerics: str) -> None:
    torch.manual_seed(
        2
    )  # in float32 a mean is rounded in steps of the subnormal numbers, which the norm magnifies
    args = (torch.randn(9, 33).to(dtype), torch.randn(9, 33).to(dtype), torch.rand(33).to(dtype))
    captured = capture(fn, args)
    exe = build(plan(captured.graph, target=get("cpu-avx512"), numerics=numerics), captured)
    assert exe.kernels
    found = verify(exe, captured, args, numerics=numerics)
    assert found.ok, found
    assert not beyond_stored(found)


def beyond_stored(found: VerifyResult) -> list[str]:
    """Notes, but for the one that no kernel's values are compared where random numbers are not eager's."""
    return [note for note in found.notes if "each kernel stores" not in note]


@pytest.mark.parametrize("fill", [lambda x: x.normal_(0, 2), lambda x: x.uniform_(-1, 3)])
def test_arguments_filled_in_place(fill: Any) -> None:
    args = (torch.randn(9, 33, dtype=torch.float64),)
    captured = capture(lambda x: fill(x).neg().neg(), args)
    exe = build(plan(captured.graph, target=get("cpu-avx512")), captured)
    assert exe.counted_draws
    found = verify(exe, captured, args)
    assert found.ok and not beyond_stored(found), found


def test_a_saved_graph_that_draws() -> None:
    args = (torch.randn(9, 33), torch.randn(9, 33), torch.rand(33))
    graph = fb.capture(block, *args)
    from fusebound.ir.text import parse_graph, print_graph

    again = parse_graph(print_graph(graph))
    assert again == graph
    from fusebound.capture.saved import captured_from_graph

    captured = captured_from_graph(again)
    exe = build(plan(again, target=get("cpu-avx512")), captured)
    first = fb.build(fb.plan(graph, hardware="cpu-avx512"))
    results = []
    for run in (exe, first):
        torch.manual_seed(2)
        results.append(run(*args))
    assert torch.equal(*results)
    assert verify(exe, captured, args).ok


def test_other_numbers_are_found() -> None:
    """A mask of another draw is no rounding error."""
    args = (torch.randn(9, 33), torch.randn(9, 33), torch.rand(33))
    captured = capture(block, args)
    exe = build(plan(captured.graph, target=get("cpu-avx512")), captured)

    class Late:
        counted_draws = exe.counted_draws

        def __call__(self, *given: Any) -> Any:
            torch.rand(1)
            return exe(*given)

    assert not verify(Late(), captured, args).ok
