"""`torch._foreach_*` over several tensors: one operator for each, so that each tensor's chain is a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fusebound.engine.compile import CompiledFunction, Options, compile

FOREACH: Any = torch
Lists = list[list[Tensor]]


def fused(fn: Callable[..., Any]) -> CompiledFunction:
    return compile(fn, Options(contest=False, expected_calls=10**9, hardware="cpu-avx512"))


def lists(count: int) -> Lists:
    """Tensors of three shapes, positive where a root is taken."""
    g = torch.Generator().manual_seed(0)
    return [[torch.rand(n, 33, generator=g) + 0.1 for n in (3, 17, 1)] for _ in range(count)]


def copies(given: Lists) -> Lists:
    return [[t.clone() for t in ts] for ts in given]


def adam(p: list[Tensor], g: list[Tensor], m: list[Tensor], v: list[Tensor]) -> None:
    FOREACH._foreach_lerp_(m, g, 0.1)
    FOREACH._foreach_mul_(v, 0.999)
    FOREACH._foreach_addcmul_(v, g, g, 0.001)
    d = FOREACH._foreach_sqrt(v)
    FOREACH._foreach_div_(d, [0.03, 0.04, 0.05])
    FOREACH._foreach_add_(d, 1e-8)
    FOREACH._foreach_addcdiv_(p, m, d, -0.001)


CHAINS: dict[str, Callable[..., Any]] = {
    "mul_": lambda a, b: (*FOREACH._foreach_mul_(a, 0.5), *FOREACH._foreach_mul_(a, b)),
    "addcdiv_": lambda a, b: (*FOREACH._foreach_addcdiv_(a, b, b, 0.3), *FOREACH._foreach_addcdiv_(a, b, b, [1, 2, 3])),
    "lerp_": lambda a, b: (*FOREACH._foreach_lerp_(a, b, 0.3), *FOREACH._foreach_lerp_(a, b, b)),
    "add": lambda a, b: FOREACH._foreach_sqrt(FOREACH._foreach_add(a, b, alpha=2)),
    "sqrt": lambda a, b: FOREACH._foreach_mul(FOREACH._foreach_sqrt(a), b),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_each_tensor_has_a_kernel_of_its_own(name: str) -> None:
    given = lists(2)
    theirs = copies(given)
    f = fused(CHAINS[name])
    for _ in range(2):
        results, expected = f(*given), CHAINS[name](*theirs)
        torch.testing.assert_close(results, expected, rtol=3e-7, atol=1e-7)
        torch.testing.assert_close(given, theirs, rtol=3e-7, atol=1e-7)
    assert f.plan is not None
    assert [(g.kind, len(g.users)) for g in f.plan.groups] == [("kernel", 2)] * 3
    written = [a._version > 0 for ts in theirs for a in ts]
    assert [a._version > 0 for ts in given for a in ts] == written


def test_an_optimizer_step_in_lists() -> None:
    given = lists(4)
    theirs = copies(given)
    f = fused(adam)
    for _ in range(3):
        f(*given)
        adam(*theirs)
    torch.testing.assert_close(given, theirs, rtol=3e-7, atol=1e-7)
    assert f.plan is not None and [len(g.users) for g in f.plan.groups] == [7, 7, 7]


def test_one_tensor_of_the_list_is_not_used() -> None:
    a, _ = lists(2)
    f = fused(lambda a: FOREACH._foreach_add(FOREACH._foreach_mul(a, 2.0), 1.0)[1] * 2)
    torch.testing.assert_close(f(a), (a[1] * 2 + 1) * 2)
    assert f.plan is not None and len(f.plan.graph.user_ops) == 3


@pytest.mark.parametrize(
    "wrong",
    (
        lambda a, b: FOREACH._foreach_mul_(a, b[:2]),
        lambda a, b: FOREACH._foreach_mul_(a, [1.0, 2.0]),
        lambda a, b: FOREACH._foreach_mul_([t.long() for t in a], 0.5),
        lambda a, b: FOREACH._foreach_add_(a, [t[:, :5] for t in b]),
        lambda a, b: FOREACH._foreach_add([], 1.0),
    ),
)
@pytest.mark.filterwarnings("ignore::fusebound.engine.compile.EagerNotice")
def test_what_eager_refuses_is_refused(wrong: Callable[..., Any]) -> None:
    a, b = lists(2)
    with pytest.raises(Exception) as theirs:
        wrong(*copies([a, b]))
    with pytest.raises(type(theirs.value), match=str(theirs.value)[:20]):
        fused(wrong)(a, b)
