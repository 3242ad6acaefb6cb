"""One storage, several callers: threads that write their own parts of it, and calls one after another."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fusebound.engine.compile import EagerNotice, Options, compile

OPTIONS = Options(contest=False, expected_calls=10**9, hardware="cpu-avx512")
ROUNDS = 30


def step(p: Tensor, g: Tensor) -> Tensor:
    p.mul_(0.5).add_(g * 0.25)
    return (p * 2).abs()


def together(jobs: Sequence[Callable[[], None]]) -> None:
    """Run the jobs in a thread each; the first exception is raised here."""
    failed: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]


def expected(p: Tensor, g: Tensor) -> Tensor:
    p = p.clone()
    for _ in range(ROUNDS):
        step(p, g)
    return p


def test_threads_write_their_own_rows_of_one_matrix() -> None:
    compiled = compile(step, OPTIONS)
    matrix, shared = torch.arange(4 * 257.0).view(4, 257), torch.linspace(-1, 1, 257)
    want = torch.stack([expected(row, shared) for row in matrix])

    def job(row: Tensor) -> None:
        for _ in range(ROUNDS):
            result = compiled(row, shared)
            assert torch.equal(result, (row * 2).abs())

    together([lambda row=row: job(row) for row in matrix])
    assert torch.equal(matrix, want)
    assert compiled.executable is not None


def test_a_thread_on_overlapping_memory_does_not_disturb_the_others() -> None:
    compiled = compile(step, OPTIONS)
    apart, shared = torch.ones(257), torch.linspace(-1, 1, 257)
    line = torch.linspace(0, 1, 300)
    mine = line.clone()
    want = expected(apart, shared)
    for _ in range(ROUNDS):
        step(mine[:257], mine[40:297])

    def overlapping() -> None:
        for _ in range(ROUNDS):
            compiled(line[:257], line[40:297])

    def separate() -> None:
        for _ in range(ROUNDS):
            compiled(apart, shared)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerNotice)
        together([overlapping, separate])
    assert torch.equal(line, mine)
    assert torch.equal(apart, want)


def test_callers_one_after_another_see_what_the_other_wrote() -> None:
    writer, reader = compile(step, OPTIONS), compile(lambda x, y: (x - y).exp() + x, OPTIONS)
    x = torch.linspace(-1, 1, 300)
    y = x.clone()
    for _ in range(3):
        got = writer(x[:150], x[150:]), reader(x[100:200], x[50:150])
        want = step(y[:150], y[150:]), (y[100:200] - y[50:150]).exp() + y[100:200]
        assert torch.equal(x, y)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b)
    assert writer.executable is not None
    assert reader.executable is not None
