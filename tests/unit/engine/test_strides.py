"""Results have eager's strides, also where tracing believes in others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusebound.engine.compile import Options, compile

PERMUTED = torch.randn(3, 5, 4).as_strided((3, 5, 4), (1, 12, 3))
INTEGERS = torch.arange(1, 61, dtype=torch.int32).view(3, 5, 4)
ONE = torch.randn(24).as_strided((3, 1, 8), (1, 24, 3))


def in_place(x: torch.Tensor, y: torch.Tensor) -> Any:
    v = x.erf()
    v.masked_fill_(v > 0, 1)
    return v, v.expand(2, *v.shape), v * 2


def in_place_through_a_view(x: torch.Tensor, y: torch.Tensor) -> Any:
    v = x.erf()
    v.mT.masked_fill_(v.mT > 0, 1)
    return v, v + 1


def in_part(x: torch.Tensor, y: torch.Tensor) -> Any:
    v = x.erf()
    v[1:].masked_fill_(v[1:] > 0, 1)
    return v, v + 1, v[1:]


def copied_through_a_view(x: torch.Tensor, y: torch.Tensor) -> Any:
    v = x[:, 0, :3] > 0
    v.mT.copy_(y[0, 0, :3] > 0)
    return v, v.logical_not()


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: (x // y, (x // y) * 2, (y // x).abs() + 1),
        lambda x, y: (x.copysign(y) + 1, torch.xlogy(x, y) * 2, torch.logical_and(x, y)),
        lambda x, y: (F.logsigmoid(x), F.logsigmoid(x) + 1, (0.5**x) * 2),
        lambda x, y: (torch.logaddexp(x, x[:1].expand(x.shape)), torch.logical_or(x[:1].expand(x.shape), x)),
        in_place, in_place_through_a_view, in_part, copied_through_a_view,
    ],
)  # fmt: skip
@pytest.mark.parametrize("policy", ["tile", "elementwise"])
def test_strides(fn: Callable[..., Any], policy: str) -> None:
    compiled = compile(fn, Options(policy=policy, contest=False, expected_calls=10**9, hardware="cpu-avx512"))
    for args in ((PERMUTED, INTEGERS), (ONE, ONE.contiguous())):
        got, want = compiled(*args), fn(*args)
        assert compiled.executable is not None
        for a, b in zip(got, want, strict=True):
            assert walked(a) == walked(b)
            torch.testing.assert_close(a, b, equal_nan=True)


def walked(t: torch.Tensor) -> list[int]:
    """Strides of axes that have more than one element."""
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1]
