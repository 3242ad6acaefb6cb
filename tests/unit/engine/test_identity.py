"""One tensor given twice is one object: code that asks for it gets eager's answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusebound.engine.compile import EagerNotice, Options, compile

CPU = Options(contest=False, expected_calls=10**9, hardware="cpu-avx512")


def same(q: Any, k: Any) -> bool:
    return q is k


ASKS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "is": lambda q, k: torch.relu(q * 2 + (1 if q is k else 5)),
    "is not": lambda q, k: torch.relu(q * 2 + (1 if q is not k else 5)),
    "id": lambda q, k: torch.relu(q * 2 + len({id(q), id(k)})),
    "helper": lambda q, k: torch.relu(q * 2 + same(q, k)),
    "inner": lambda q, k: torch.relu(q * 2 + sum(x is q for x in (q, k))),
}


@pytest.mark.parametrize("fn", ASKS.values(), ids=ASKS)
def test_code_that_asks_which_object_it_is_given(fn: Callable[..., Any]) -> None:
    g, x = compile(fn, CPU), torch.randn(33)
    with pytest.warns(EagerNotice, match="given twice"):
        for _ in range(2):
            assert torch.equal(g(x, x), fn(x, x)) and g.executable is None
            assert torch.equal(g(x, x.clone()), fn(x, x.clone())) and g.executable is not None


def test_a_comparison_with_a_constant_does_not_ask() -> None:
    g = compile(lambda q, k: torch.relu(q * 2 + (0 if k is None or q is None else k)), CPU)
    x = torch.randn(33)
    assert torch.equal(g(x, x), g.fn(x, x)) and g.executable is not None


@pytest.mark.parametrize("wrapped", [False, True], ids=["module", "function"])
def test_self_attention(wrapped: bool) -> None:
    """Eager projects three equal operands at once."""
    torch.manual_seed(0)
    m = torch.nn.MultiheadAttention(16, 2, batch_first=True).eval()
    fn = (lambda q, k, v: m(q, k, v)) if wrapped else m
    g, x = compile(fn, CPU), torch.randn(2, 9, 16)
    with torch.no_grad(), pytest.warns(EagerNotice, match="given twice"):
        assert all(map(torch.equal, g(x, x, x), fn(x, x, x)))
