"""Memory that a program shares or writes where eager does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.unit.verify.programs import trace

from fusebound.verify.check import verify
from fusebound.verify.memory import Copies


def _memory(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([], dtype=x.dtype).set_(x.untyped_storage())  # pyright: ignore[reportCallIssue, reportArgumentType]


def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def updated(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x


def beyond(x: torch.Tensor) -> torch.Tensor:
    """Writes what lies behind its input."""
    x.mul_(2)
    _memory(x)[48:].fill_(1.0)
    return x


def between(x: torch.Tensor) -> torch.Tensor:
    """Writes what lies between the columns of its input."""
    _memory(x)[:48].mul_(2)
    return x


def copied(x: torch.Tensor) -> torch.Tensor:
    return x.mul_(2).clone()


_BUFFER = torch.empty(6, 4)


def reused(x: torch.Tensor) -> torch.Tensor:
    return torch.mul(x, 2, out=_BUFFER)


@pytest.mark.parametrize(
    ("exe", "eager", "fault"),
    [
        (doubled, doubled, ""),
        (updated, updated, ""),
        (beyond, updated, "memory around an input was written"),
        (between, updated, "memory around an input was written"),
        (copied, updated, "output 0 shares memory with nothing, in eager with input"),
        (reused, doubled, "the results of an earlier call were overwritten"),
    ],
)
def test_memory_is_eager_s(exe: Callable[..., object], eager: Callable[..., object], fault: str) -> None:
    x = torch.randn(6, 8)[:, ::2]
    found = verify(exe, trace(eager, x), (x,))
    assert found.ok == (not fault)
    assert any(f.startswith(fault) for f in found.faults) or not fault


def test_copies_share_memory_and_keep_strides() -> None:
    x = torch.arange(24.0).view(4, 6)
    parts = [x[1:, ::2], x.t(), x.view(torch.int32)[0]]
    copies = Copies()
    mine = [copies.of(p) for p in parts]
    for copy, part in zip(mine, parts, strict=True):
        assert torch.equal(copy, part) and copy.stride() == part.stride()
    mine[1].zero_()
    assert all(not copy.any() for copy in mine) and x.any()


def test_widened_copies_share_memory_type_by_type() -> None:
    x = torch.arange(24.0)
    copies = Copies(lambda dtype: torch.float64 if dtype == torch.float32 else dtype)
    head, reversed, words = (copies.of(t) for t in (x[:8], x[4:].view(5, 4).t(), x.view(torch.int32)))
    assert head.dtype == torch.float64 and words.dtype == torch.int32
    assert torch.equal(reversed, x[4:].view(5, 4).t().double()) and reversed.stride() == (1, 4)
    head.zero_()
    assert not reversed[:, 0].any() and torch.equal(words, x.view(torch.int32))
