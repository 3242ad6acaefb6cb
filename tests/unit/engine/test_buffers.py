"""Buffers that a function assigns anew: every call of the compiled form changes them once, as eager does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusebound as fb

Step = Callable[[Any, torch.Tensor], torch.Tensor]


class State(torch.nn.Module):
    def __init__(self, step: Step) -> None:
        super().__init__()
        self.register_buffer("none", None)
        self.register_buffer("mean", torch.arange(3.0))
        self.register_buffer("count", torch.ones(3))
        self.inner = torch.nn.Module()
        self.inner.register_buffer("scale", torch.full((3,), 2.0))
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(self, x)


def running(s: Any, x: torch.Tensor) -> torch.Tensor:
    s.mean = s.mean + x.mean(0)
    return (x - s.mean).relu() * 2


def inner(s: Any, x: torch.Tensor) -> torch.Tensor:
    s.inner.scale = s.inner.scale * 1.5
    return x * s.inner.scale + 1


def twice(s: Any, x: torch.Tensor) -> torch.Tensor:
    s.mean = s.mean * 0.5
    s.mean = s.mean + s.count
    s.count = s.count + s.mean
    return x + s.mean * s.count


def tied(s: Any, x: torch.Tensor) -> torch.Tensor:
    s.inner.twin = s.inner.twin + 1
    return (x + s.mean) * s.inner.twin


def old(s: Any, x: torch.Tensor) -> torch.Tensor:
    before = s.mean
    s.mean = (s.mean + x[0]) * 0.5
    return before


@pytest.mark.filterwarnings("ignore::fusebound.engine.compile.EagerNotice")
@pytest.mark.parametrize("step", [running, inner, twice, old, tied])
def test_each_call_assigns_once(step: Step) -> None:
    mine = State(step)
    if step is tied:
        mine.inner.register_buffer("twin", mine.get_buffer("mean"))
    theirs = copy.deepcopy(mine)
    f = fb.compile(mine)
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(f(x), theirs(x))
            torch.testing.assert_close(dict(mine.named_buffers()), dict(theirs.named_buffers()))
