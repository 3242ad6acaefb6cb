"""Plans of kernels alone run as one function: the same values, versions and memory as step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusebound.capture.torch import capture
from fusebound.engine.build import build
from fusebound.plan.greedy import plan
from fusebound.runtime.executable import Executable
from fusebound.target import get


def built(fn: Callable[..., Any], *args: Any) -> Executable:
    captured = capture(fn, args)
    target = get("cpu-avx512")
    return build(plan(captured.graph, target=target, expected_calls=10**9), captured, target=target)


def two_outputs(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    s = x * y
    return s.relu() + 1, s.sum(-1)


def several_kernels(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    s = torch.softmax(x + y, -1)
    return (s.t().contiguous() * 2).sum(-1) + 1


def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(0.9).add_(y)
    return x.abs() + 1


def noisy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x + y, 0.3) * 2


def one_view(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y + 1).view(-1, 8, 5).permute(2, 0, 1)


def parts_of_one(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    s = x * y + 1
    return s[1:, ::2], *s.t().split(7), s.diagonal(), s[:, :1].expand(-1, 3)


def views_of_a_result(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    s = x * y + 1
    return s, s.t().unsqueeze(1)


def with_products(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    s = (x @ y.t()).relu() * 2
    values, indices = torch.topk(torch.softmax(s @ y, -1).t(), 3, dim=0)
    parts = torch.cat([values.t(), s[:, :2] + 1], 1)
    return parts, indices, torch.einsum("ij,kj->ik", parts, parts + 1)


def a_view_is_read_on(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    s = torch.softmax(x + y, -1).t()
    return s, s.sum(0) * 2


@pytest.mark.parametrize(
    "fn",
    [
        two_outputs,
        several_kernels,
        step,
        noisy,
        one_view,
        parts_of_one,
        a_view_is_read_on,
        views_of_a_result,
        with_products,
    ],
)
@pytest.mark.parametrize("rows", [3, 3000])
def test_as_step_by_step(fn: Callable[..., Any], rows: int) -> None:
    x, y = torch.randn(rows, 40), torch.randn(rows, 40)
    exe = built(fn, x.clone(), y)
    assert exe.is_straight
    found: list[tuple[Any, torch.Tensor, int]] = []
    for poison in (False, True):  # with poison every step is watched
        exe.poison = poison
        torch.manual_seed(3)
        own = x.clone()
        found.append((exe(own, y), own, own._version))
    torch.testing.assert_close(found[0][:2], found[1][:2], rtol=0, atol=0)
    assert found[0][2] == found[1][2]


def test_views_keep_strides_and_share_memory() -> None:
    x, y = torch.randn(9, 40), torch.randn(9, 40)
    for fn in (one_view, parts_of_one, a_view_is_read_on, views_of_a_result):
        mine, theirs = built(fn, x, y)(x, y), fn(x, y)
        for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (mine, theirs)), strict=True):
            assert (a.shape, a.stride(), a.storage_offset()) == (b.shape, b.stride(), b.storage_offset())
    assert built(parts_of_one, x, y).is_straight
    first, *others = built(parts_of_one, x, y)(x, y)
    first.zero_()
    assert all(bool((t == 0).any()) for t in others[:-1])


def test_which_plans_are_straight() -> None:
    x, y = torch.randn(3, 40), torch.randn(3, 40)
    assert built(two_outputs, x, y).is_straight
    assert built(step, x, y).is_straight
    assert built(lambda a, b: (a @ b.t()).relu() + 1, x, y).is_straight
    assert built(lambda a, i: a[i] * 2 + 1, x, torch.tensor([0, 2])).is_straight
    assert not built(lambda a, b: (torch.rand_like(a) @ b.t()).relu() + 1, x, y).is_straight
    assert not built(lambda a, b: (a.mul_(2).relu() + 1, a @ b.t()), x, y).is_straight
