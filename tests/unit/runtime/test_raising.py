"""What eager refuses a compiled function refuses in eager's words, and leaves its inputs alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusebound.engine.compile import Options, compile

X = torch.arange(12.0).reshape(3, 4)
FAR = torch.tensor([0, 7])
CASES: dict[str, tuple[Callable[..., torch.Tensor], tuple[Any, ...], tuple[Any, ...]]] = {
    "gather": (lambda x, i: x.gather(1, i), (X, FAR[None] * 0), (X, FAR[None])),
    "index_select": (lambda x, i: x.index_select(0, i), (X, FAR * 0), (X, FAR)),
    "indexing": (lambda x, i: x[i], (X, FAR * 0), (X, FAR)),
    "embedding": (lambda i, w: F.embedding(i, w), (FAR * 0, X), (FAR, X)),
    "integer division": (lambda a, b: (a // b).float(), (FAR, FAR + 1), (FAR, FAR)),
    "remainder": (lambda a, b: (a % b).float(), (FAR, FAR + 1), (FAR, FAR)),
    "probability": (torch.bernoulli, (X / 12,), (X,)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_exception_is_eager_s(name: str) -> None:
    fn, right, wrong = CASES[name]

    def twice(*args: torch.Tensor) -> torch.Tensor:
        return fn(*args).neg().neg()

    compiled = compile(twice, Options(contest=False, expected_calls=10**9, hardware="cpu-avx512"))
    compiled(*right)
    assert compiled.executable is not None and len(compiled.executable.kernels) == 1
    assert name == "probability" or any(k.flags for k in compiled.executable.kernels)
    with pytest.raises(Exception) as eager:
        twice(*wrong)
    with pytest.raises(type(eager.value)) as ours:
        compiled(*wrong)
    assert type(ours.value) is type(eager.value) and str(ours.value) == str(eager.value)


def test_a_kernel_that_raises_writes_into_no_input() -> None:
    def f(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x.add_(w[i]).neg()

    x, w = torch.zeros(2, 4), X.clone()
    compiled = compile(f, Options(contest=False, expected_calls=10**9, hardware="cpu-avx512"))
    compiled(x, w, FAR * 0)
    x.zero_()
    with pytest.raises(IndexError):
        compiled(x, w, FAR)
    assert not x.any()
