"""What a call writes into an argument is what eager writes: the rest of it may belong to somebody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.catalogue.harness import FOREVER, PLANNED_FOR, call, compare, own, rand

from fusebound.capture.torch import capture
from fusebound.engine.compile import Options, compile
from fusebound.runtime.written import parts


def row(x: torch.Tensor, y: torch.Tensor) -> None:
    x[1].add_(y[0]).mul_(2)


def block(x: torch.Tensor, y: torch.Tensor) -> None:
    x[1:3, ::2].add_(y[:2, ::2]).sigmoid_()


def inner(x: torch.Tensor, y: torch.Tensor) -> None:
    x[2][3:6].sub_(y[0, 3:6]).exp_()


def two(x: torch.Tensor, y: torch.Tensor) -> None:
    x[0].add_(y[0]).mul_(2)
    x[3, 1:4].copy_(y[1, 1:4] * 3 + 1)


def again(x: torch.Tensor, y: torch.Tensor) -> None:
    x[1:4].mul_(y[1:4]).add_(1)
    x[2:6].add_(y[2:6]).mul_(3)


def column(x: torch.Tensor, y: torch.Tensor) -> None:
    x.t()[2].add_(y[:, 0]).mul_(2)


def all_of_it(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y).mul_(2)


@pytest.mark.parametrize("fn", [row, block, inner, two, again, column, all_of_it])
def test_the_views_show_what_eager_writes(fn: Callable[..., Any]) -> None:
    args = (torch.zeros(7, 9), torch.ones(7, 9))
    captured = capture(fn, own(args))
    mutations = captured.graph.mutations
    shown = torch.zeros(7, 9, dtype=torch.bool)
    for m in mutations:
        views = parts(captured.graph, m)
        assert (views is None) == (fn is all_of_it)
        for view in views or [lambda t: t]:
            view(shown).fill_(True)
    fn(*args)
    assert torch.equal(shown, args[0] != 0)


@pytest.mark.parametrize("fn", [row, block, inner, two, again, column])
def test_the_results_are_eagers(fn: Callable[..., Any]) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        fn(x, y)
        return y * 2 + 1

    args = (rand(7, 9), rand(7, 9, seed=1))
    compiled = compile(f, Options(contest=False, expected_calls=FOREVER, hardware=PLANNED_FOR))
    compare(capture(f, own(args)), args, call(compiled, args))
    exe = compiled.executable
    assert exe is not None and exe.copied_back.get("x", 0) <= 2 * args[0].nbytes
