"""Eager's lerp, addcmul and add with a factor are one multiply-add; ours give the same bits."""

from collections.abc import Callable

import pytest
import torch

import fusebound as fb

Fn = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

FUNCTIONS: dict[str, Fn] = {
    "lerp, small weight": lambda a, b, t: torch.lerp(a, b, 0.1),
    "lerp, large weight": lambda a, b, t: torch.lerp(a, b, 0.9),
    "lerp, half": lambda a, b, t: torch.lerp(a, b, 0.5),
    "lerp, tensor weight": lambda a, b, t: torch.lerp(a, b, t),
    "addcmul": lambda a, b, t: torch.addcmul(a, b, t),
    "addcmul, value": lambda a, b, t: torch.addcmul(a, b, t, value=0.1),
    "addcdiv, value": lambda a, b, t: torch.addcdiv(a, b, t, value=0.1),
    "add, alpha": lambda a, b, t: torch.add(a, b, alpha=0.1),
    "add, number": lambda a, b, t: torch.add(a, 0.3, alpha=0.1),
    "sub, alpha": lambda a, b, t: torch.sub(a, b, alpha=0.1),
    "rsub, alpha": lambda a, b, t: torch.rsub(a, b, alpha=0.1),
}


@pytest.mark.parametrize("scale", [1.0, 1e-23], ids=["ordinary", "products underflow"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_bits_as_eager(name: str, dtype: torch.dtype, scale: float) -> None:
    f = FUNCTIONS[name]
    a, b, t = (torch.randn(3, 4096, generator=torch.Generator().manual_seed(0)) * scale).to(dtype)
    graph = fb.capture(lambda a, b, t: f(a, b, t).neg(), a, b, t)
    plan = fb.plan(graph, hardware="cpu-avx512", expected_calls=10**9)
    assert any(len(g.nodes) > 1 for g in plan.groups)
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    assert torch.equal(fb.build(plan)(a, b, t).view(bits), f(a, b, t).neg().view(bits))
