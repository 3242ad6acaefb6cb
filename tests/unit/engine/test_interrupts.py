"""Ctrl-C while a function is compiled or run: the call ends there, and the next one is right."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
import torch
import torch.nn.functional as F

from fusebound.engine.compile import CompiledFunction, Options

OPTIONS = Options(hardware="cpu-avx512", expected_calls=10**9, contest=False)


def norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x * 2, x.shape[-1:], w).relu() + 1


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


def seconds_to_compile(size: int) -> float:
    start = time.perf_counter()
    CompiledFunction(norm, OPTIONS)(torch.randn(3, size), torch.randn(size))
    return time.perf_counter() - start


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # swallowed by a finalizer of torch's
def test_an_interrupted_compilation_is_begun_anew() -> None:
    seconds_to_compile(64)  # what is imported and set up once
    whole = seconds_to_compile(65)
    stopped = 0
    for i in range(12):
        f = CompiledFunction(norm, OPTIONS)
        x, w = torch.randn(3, 70 + i), torch.randn(70 + i)
        try:
            with interrupted_after(whole * (i + 1) / 13):
                f(x, w)
        except KeyboardInterrupt:
            stopped += 1
        torch.testing.assert_close(f(x, w), norm(x, w))
        assert f.executable is not None and f.executable.kernels, f.reason
    assert stopped


def test_an_interrupted_call_leaves_a_function_that_works() -> None:
    x, w = torch.randn(2000, 700), torch.randn(700)
    f = CompiledFunction(norm, OPTIONS)
    right = f(x, w)
    for i in range(20):
        with pytest.raises(KeyboardInterrupt), interrupted_after(0.0005 * (i + 1)):
            while True:
                f(x, w)
        assert torch.equal(f(x, w), right)
