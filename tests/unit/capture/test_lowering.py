"""Primitives compute what eager computes, for every operator that has a lowering.

Each family is one captured function, so that tracing is paid once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from tests.unit.capture import samples
from tests.unit.capture.interp import interpret
from torch.utils._pytree import tree_leaves

from fusebound.capture.lower import LOWERINGS
from fusebound.capture.torch import Captured, capture
from fusebound.ir.spec import verify

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
# Sums in another order and cancellation: units in the last place of the largest element.
ULPS = {torch.float32: 8, torch.float64: 8, torch.bfloat16: 2, torch.float16: 2}


def together(fns: Mapping[str, samples.Fn]) -> samples.Fn:
    def all_of_them(*args: torch.Tensor) -> dict[str, Any]:
        return {name: fn(*args) for name, fn in fns.items()}

    return all_of_them


def check(fns: Mapping[str, samples.Fn], *args: torch.Tensor) -> Captured:
    fn = together(fns)
    captured = capture(fn, args)
    verify(captured.graph)
    opaque = {u.label: u.why for u in captured.graph.user_ops if u.why}
    assert not opaque
    want = fn(*(a.clone() for a in args))
    flat = interpret(captured, [a.clone() for a in args])[: len(captured.graph.outputs)]
    got = captured.unflatten(flat)
    for (id, value), out in zip(
        zip(captured.graph.outputs, flat, strict=True), tree_leaves(want), strict=True
    ):
        assert captured.graph.values[id].strides == out.stride(), (id, out.stride())
        assert value.shape == out.shape
    wrong = {n: fault for n in fns if (fault := difference(got[n], want[n]))}
    assert not wrong
    return captured


def difference(got: Any, want: Any) -> str:
    for g, w in zip(tree_leaves(got), tree_leaves(want), strict=True):
        if g.dtype != w.dtype or g.shape != w.shape:
            return f"{g.dtype}{tuple(g.shape)} for {w.dtype}{tuple(w.shape)}"
        if not w.dtype.is_floating_point:
            if not torch.equal(g, w):
                return f"{g} for {w}"
            continue
        if not torch.equal(g.isnan(), w.isnan()) or not torch.equal(g.isinf(), w.isinf()):
            return f"another class: {g} for {w}"
        finite = torch.isfinite(w)
        g, w = g[finite].double(), w[finite].double()
        scale = torch.maximum(w.abs(), w.abs().mean())
        limit = ULPS[want_type(want, got)] * torch.finfo(want_type(want, got)).eps * scale
        if bool(((g - w).abs() > limit).any()):
            return f"off by {((g - w).abs() / limit).max():.3g} limits"
    return ""


def want_type(want: Any, got: Any) -> torch.dtype:
    return max(
        (t.dtype for t in tree_leaves(want) if t.dtype.is_floating_point), key=lambda d: torch.finfo(d).eps
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unary(dtype: torch.dtype) -> None:
    check(samples.UNARY, samples.operands(dtype)[0])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_binary(dtype: torch.dtype) -> None:
    check(samples.BINARY, *samples.operands(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_moves(dtype: torch.dtype) -> None:
    check(samples.MOVES, samples.operands(dtype)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gather_and_losses(dtype: torch.dtype) -> None:
    check(samples.GATHER, samples.operands(dtype)[0], torch.tensor([[0, 3], [1, 1], [3, 2], [2, 0]]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8], ids=str)
def test_integers(dtype: torch.dtype) -> None:
    gen = torch.Generator().manual_seed(3)
    a, b = (torch.randint(-5, 6, (3, 4), generator=gen).to(dtype) for _ in range(2))
    check(samples.INTEGER, a, b)


def test_booleans() -> None:
    gen = torch.Generator().manual_seed(3)
    a, b = (torch.rand(3, 4, generator=gen) < 0.5 for _ in range(2))
    check(samples.BOOLEAN, a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_special_values(dtype: torch.dtype) -> None:
    a, b = samples.operands(dtype, special=True)
    # gelu(-inf) is NaN or -0 in eager, as the size decides which library runs it.
    check({k: v for k, v in samples.UNARY.items() if k != "gelu"}, a)
    check(samples.BINARY, a, b)


def test_every_lowering_is_of_an_operator() -> None:
    from fusebound.capture.replay import resolve

    for target in LOWERINGS:
        assert resolve(target)
