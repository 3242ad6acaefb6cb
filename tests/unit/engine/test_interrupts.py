"""Ctrl-C while a function is compiled or run: the call ends there, and the next one is right."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusebound.engine import compile as engine
from fusebound.engine.compile import CompiledFunction, Options

OPTIONS = Options(hardware="cpu-avx512", expected_calls=10**9, contest=False)


def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x * 2, x.shape[-1:], w).relu() + 1


@pytest.mark.parametrize("stage", ["capture", "make_plan", "build", "rehearse", "make"])
def test_an_interrupted_compilation_is_begun_anew(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, x, w = CompiledFunction(norm, OPTIONS), torch.randn(3, 70), torch.randn(70)

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(engine, stage, interrupt)
        f(x, w)
    torch.testing.assert_close(f(x, w), norm(x, w))
    assert f.executable is not None and f.executable.kernels, f.reason


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """KeyboardInterrupt in this thread, as Ctrl-C raises it, unless the block is over by then."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_interrupted_call_leaves_a_function_that_works() -> None:
    x, w = torch.randn(2000, 700), torch.randn(700)
    f = CompiledFunction(norm, OPTIONS)
    right = f(x, w)
    for i in range(20):
        with contextlib.suppress(KeyboardInterrupt), interrupted_after(0.0005 * (i + 1)):
            for _ in range(200):
                f(x, w)
        assert torch.equal(f(x, w), right)
