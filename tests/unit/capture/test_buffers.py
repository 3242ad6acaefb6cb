"""Buffers that are assigned anew are captured, or refused: never lost."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import fusebound as fb
from fusebound.capture.torch import capture
from fusebound.errors import CaptureError


class Mean(torch.nn.Module):
    """Assigns a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("b", torch.zeros(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.b = self.b.lerp(x.mean(0), 0.5)
        return (x - self.b).relu() * 2


class Outer(torch.nn.Module):
    """Has the same in a submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(Mean())

    @property
    def b(self) -> Any:
        return self.inner[0].b

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).exp() + 1


class Lazy(Mean):
    """Its buffer holds nothing at first."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("b", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.b is None:
            self.b = x.mean(0)
        return (x - self.b).relu() * 2


class New(torch.nn.Module):
    """Registers a buffer."""

    b = torch.zeros(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.register_buffer("c", x.mean(0))
        return (x - self.b).relu() * 2


def reaching(module: torch.nn.Module) -> Any:
    return lambda x: module(x) * 2 + 1


@pytest.mark.parametrize("make", [Mean, Outer])
def test_one_of_any_module_is_captured(make: type[torch.nn.Module]) -> None:
    assert len(capture(make(), (torch.ones(4, 5),)).graph.mutations) == 1


class Counter(Outer):
    """Writes into one of a submodule, and assigns it again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner[0].b += 1  # type: ignore[operator]
        return x * self.b


def test_one_that_is_written_in_place_is_captured() -> None:
    assert len(capture(Counter(), (torch.ones(4, 5),)).graph.mutations) == 1


@pytest.mark.parametrize("make", [Lazy, New])
def test_others_are_refused_at_their_line_and_stay(make: type[torch.nn.Module]) -> None:
    module = make()
    before = dict(module.named_buffers())
    with pytest.raises(CaptureError, match="changes self") as raised:
        capture(module, (torch.ones(4, 5),))
    assert raised.value.code == "E202" and "test_buffers.py" in raised.value.where
    assert dict(module.named_buffers()) == before


@pytest.mark.parametrize("make", [Mean, Outer, Lazy])
def test_every_call_assigns_once(make: type[Any]) -> None:
    mine, theirs = make(), make()
    forms = [(fb.compile(mine), theirs), (fb.compile(reaching(mine)), reaching(theirs))]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for f, g in forms:
            for i in range(3):
                x = torch.full((4, 5), i + 1.0)
                torch.testing.assert_close(f(x), g(x))
                torch.testing.assert_close(mine.b, theirs.b)
