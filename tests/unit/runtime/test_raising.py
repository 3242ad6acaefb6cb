"""What eager refuses a compiled function refuses in eager's words, and leaves its inputs alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusebound.engine.compile import Options, compile

FUSED = Options(contest=False, expected_calls=10**9, hardware="cpu-avx512")
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

    compiled = compile(twice, FUSED)
    compiled(*right)
    assert compiled.executable is not None and len(compiled.executable.kernels) == 1
    assert name == "probability" or any(k.flags for k in compiled.executable.kernels)
    refuse_alike(compiled, twice, wrong)


def refuse_alike(compiled: Callable[..., Any], eager: Callable[..., Any], args: tuple[Any, ...]) -> None:
    with pytest.raises(Exception) as theirs:
        eager(*args)
    with pytest.raises(type(theirs.value)) as ours:
        compiled(*args)
    assert type(ours.value) is type(theirs.value) and str(ours.value) == str(theirs.value)
    assert ours.value.__cause__ is None and (
        ours.value.__context__ is None or ours.value.__suppress_context__
    ), "the kernel's own exception shows"


@pytest.mark.parametrize("contest", [False, True])
def test_of_several_the_first_in_the_user_s_order_raises(contest: bool) -> None:
    def f(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x.abs().gather(0, i)
        b = F.embedding(j, x)
        return b.neg().exp(), (a + 1).relu()

    i, j = torch.zeros(2, 4, dtype=torch.int64), torch.tensor([0, 1])
    compiled = compile(f, FUSED if not contest else replace(FUSED, contest=True))
    refuse_alike(compiled, f, (X, i + 7, j + 7))
    if not contest:
        compiled(X, i, j)
        assert compiled.plan is not None
        order = [u for g in compiled.plan.groups for u in g.users]
        assert order.index("embedding") < order.index("gather"), "the plan has them the other way round"
    for given in ((i + 7, j + 7), (i, j + 7), (i + 7, j)):
        refuse_alike(compiled, f, (X, *given))


def test_nothing_is_written_before_what_the_user_has_before_it() -> None:
    """The plan has the update first, then a boundary, then the kernel that looks up."""

    def f(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        a = w.gather(0, i)
        x.add_(1).mul_(2)
        return a.neg() + x.cumsum(0)

    x, i = torch.zeros(3, 4), torch.zeros(3, 4, dtype=torch.int64)
    compiled = compile(f, FUSED)
    compiled(x, X, i)
    assert compiled.plan is not None and compiled.plan.groups[0].users == ("add", "mul")
    assert torch.equal(x, torch.full((3, 4), 2.0))
    with pytest.raises(RuntimeError):
        compiled(x, X, i + 7)
    assert torch.equal(x, torch.full((3, 4), 2.0))


@pytest.mark.parametrize("draw", [torch.poisson, lambda q: torch.normal(0.0, q)])
def test_nothing_is_written_before_a_draw_that_may_raise(draw: Callable[..., torch.Tensor]) -> None:
    """No index and no divisor, but rates and deviations must not be negative."""

    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q = w * 2
        a = draw(q)
        x.add_(1).mul_(2)
        return a.neg(), q - x.cumsum(0)

    x = torch.zeros(3, 4)
    compiled = compile(f, FUSED)
    compiled(x, X)
    assert compiled.plan is not None and compiled.plan.groups[0].users == ("add", "mul_1")
    before = x.clone()
    refuse_alike(compiled, f, (x, -1 - X))
    assert torch.equal(x, before)


def test_a_kernel_that_raises_writes_into_no_input() -> None:
    def f(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x.add_(w[i]).neg()

    x, w = torch.zeros(2, 4), X.clone()
    compiled = compile(f, FUSED)
    compiled(x, w, FAR * 0)
    x.zero_()
    with pytest.raises(IndexError):
        compiled(x, w, FAR)
    assert not x.any()
