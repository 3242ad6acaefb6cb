"""Memory that a program shares or writes where eager does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.unit.verify.programs import trace

from fusebound.verify.check import verify


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
