"""Gradients as AOTAutograd hands them over: ATen's backward operators between light neighbours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.catalogue.harness import (
    FOREVER,
    PLANNED_FOR,
    Function,
    call,
    check,
    no_worse,
    rand,
    special,
)

from fusebound.backend.gradients import GRADIENTS
from fusebound.engine.compile import Options, compile

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]

ACTIVATIONS: dict[str, Any] = {
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0),
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -0.5, 0.75),
    "sigmoid": aten.sigmoid_backward,
    "tanh": aten.tanh_backward,
    "gelu": aten.gelu_backward,
    "gelu_tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "silu": aten.silu_backward,
    "hardswish": aten.hardswish_backward,
    "hardsigmoid": aten.hardsigmoid_backward,
    "leaky_relu": lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False),
    "elu": lambda g, x: aten.elu_backward(g, 1.5, 1.0, 1.0, False, x),
    "elu_of_result": lambda g, x: aten.elu_backward(g, 1.5, 1.25, 1.0, True, x),
    "softplus": lambda g, x: aten.softplus_backward(g, x, 2.0, 20.0),
    "softmax": lambda g, x: aten._softmax_backward_data(g, x.clamp(0, 1), -1, x.dtype),
    "log_softmax": lambda g, x: aten._log_softmax_backward_data(g, -x.abs(), 0, x.dtype),
    "dropout": lambda g, x: aten.native_dropout_backward(g, x > 0, 1 / 0.9),
    "mse": lambda g, x: aten.mse_loss_backward(g[0, 0], x, g, 1),
    "smooth_l1": lambda g, x: aten.smooth_l1_loss_backward(g[0, 0], x, g, 1, 0.7),
    "huber": lambda g, x: aten.huber_loss_backward(g[0, 0], x, g, 2, 0.7),
}

TORN = ("hardtanh", "hardswish", "elu", "elu_of_result")
"""Where eager's vector lanes and its tail disagree about NaN."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_pointwise_and_softmax(name: str, dtype: torch.dtype) -> None:
    backward = ACTIVATIONS[name]

    def f(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return backward(g * 0.5, x) + 1

    check(f, rand(7, 33, dtype=dtype), rand(7, 33, dtype=dtype, seed=1) * 2)
    if name not in ("softmax", "log_softmax", "mse", "smooth_l1", "huber"):
        edges = torch.tensor([-3.0, -0.5, -0.0, 0.0, 0.75, 3.0, 1e-3, 20.0], dtype=dtype).repeat(3)
        check(f, rand(24, dtype=dtype), edges)
        x = special(300, dtype=dtype)
        check(f, rand(300, dtype=dtype), x.nan_to_num(nan=1.0) if name in TORN else x)


def parted(whole: Any, parts: Function, *args: Any) -> None:
    """Hold the parts of an operator's gradient, fused, against the operator itself and its float64 form."""

    def widened(a: Any) -> Any:
        return a.double() if isinstance(a, torch.Tensor) else a

    def f(*tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        return parts(*(next(given) if isinstance(a, torch.Tensor) else a for a in args))

    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    compiled = compile(f, Options(contest=False, expected_calls=FOREVER, hardware=PLANNED_FOR))
    results = [call(compiled, tensors), call(whole, args), call(whole, tuple(map(widened, args)))]
    assert compiled.executable is not None and compiled.executable.kernels
    for mine, theirs, exact in zip(*(r.results for r in results), strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            no_worse(mine, theirs, exact)


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize("wanted", [(True, True, True), (True, False, True), (False, True, True)], ids=str)
def test_norms(dtype: torch.dtype, wanted: tuple[bool, ...]) -> None:
    g, x, w = rand(6, 8, 5, dtype=dtype), rand(6, 8, 5, dtype=dtype, seed=1), rand(5, dtype=dtype)
    _, mean, rstd = aten.native_layer_norm(x, [5], w, w, 1e-5)
    layer = aten.native_layer_norm_backward.default
    parted(layer, GRADIENTS[layer], g, x, [5], mean, rstd, w, w, wanted)

    w = rand(8, dtype=dtype)
    _, mean, rstd = aten.native_group_norm(x, w, w, 6, 8, 5, 2, 1e-5)
    group = aten.native_group_norm_backward.default
    parted(group, GRADIENTS[group], g, x, mean, rstd, w, 6, 8, 5, 2, wanted)

    w = w.float() if dtype == torch.bfloat16 else w
    _, mean, rstd = aten._native_batch_norm_legit(x, w, w, True, 0.1, 1e-5)
    batch = aten.native_batch_norm_backward.default
    parted(batch, GRADIENTS[batch], g, x, w, None, None, mean, rstd, True, 1e-5, wanted)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss(reduction: int, weighted: bool) -> None:
    target = torch.tensor([0, 4, -100, 2, 2, 1, 0])
    x, weight = rand(7, 5), rand(5).abs()

    def f(g: torch.Tensor, x: torch.Tensor, t: torch.Tensor, w: torch.Tensor, total: torch.Tensor) -> Any:
        return aten.nll_loss_backward(g, x, t, w if weighted else None, reduction, -100, total) * 2

    g = rand(7) if reduction == 0 else torch.tensor(0.7)
    check(f, g, x, target, weight, torch.tensor(3.5))
