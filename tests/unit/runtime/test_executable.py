"""Executables: exceptions as eager's, poisoned memory, threads, forks, profiles."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fusebound.capture.torch import capture
from fusebound.engine.build import build
from fusebound.errors import BuildError, UsageError
from fusebound.measure.bench import bench
from fusebound.plan.greedy import plan
from fusebound.runtime.executable import Executable
from fusebound.target import get

NEG_VIEW: Any = torch.ops.aten._neg_view


def built(fn: Callable[..., Any], *args: Any, threads: int = 0) -> Executable:
    captured = capture(fn, args)
    target = get("cpu-avx512")
    exe = build(
        plan(captured.graph, target=target, expected_calls=10**9), captured, target=target, threads=threads
    )
    assert exe.kernels
    return exe


def pick(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.index_select(x, 0, i) * 2 + 1


@pytest.mark.parametrize("bad", [50, -1, 2**40, -(2**62)])
def test_an_index_out_of_range_raises_and_touches_nothing(bad: int) -> None:
    x, i = torch.randn(50, 33), torch.tensor([0, 49, 7])
    exe = built(pick, x, i)
    torch.testing.assert_close(exe(x, i), pick(x, i))
    wrong = torch.tensor([0, bad, 7])
    with pytest.raises(IndexError):
        pick(x, wrong)
    with pytest.raises(IndexError, match="out of range"):
        exe(x, wrong)
    torch.testing.assert_close(exe(x, i), pick(x, i))


def test_an_index_out_of_range_in_the_tail_of_a_row() -> None:
    x, i = torch.randn(50), torch.zeros(17, dtype=torch.int64)
    exe = built(pick, x, i)
    i[16] = 50
    with pytest.raises(IndexError):
        exe(x, i)


@pytest.mark.parametrize("mode", ["floor", "trunc", "remainder"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8], ids=str)
def test_integer_division_by_zero_raises_as_eager_does(dtype: torch.dtype, mode: str) -> None:
    def divide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (torch.remainder(x, y) if mode == "remainder" else torch.div(x, y, rounding_mode=mode)) + 1

    x, y = torch.arange(33).to(dtype), torch.full((33,), 3).to(dtype)
    exe = built(divide, x, y)
    assert torch.equal(exe(x, y), divide(x, y))
    y[32] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        divide(x, y)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        exe(x, y)
    y[32] = 3
    assert torch.equal(exe(x, y), divide(x, y))


def test_the_most_negative_integer_by_minus_one_is_no_signal() -> None:
    def divide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.remainder(x, y) + 1

    x, y = torch.full((17,), torch.iinfo(torch.int64).min), torch.full((17,), -1)
    assert torch.equal(built(divide, x, y)(x, y), torch.ones(17, dtype=torch.int64))


def test_lanes_past_the_end_divide_by_nothing() -> None:
    def divide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x // y + 1

    x, y = torch.arange(3), torch.tensor([1, 2, 3])
    assert torch.equal(built(divide, x, y)(x, y), x // y + 1)


def test_poisoned_memory_is_overwritten_everywhere() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.nn.functional.pad(x * 2, (1, 2, 1, 0))
        return y + 1, torch.cat([x, x * 3], 1) - 1

    x = torch.randn(9, 33)
    exe = built(f, x)
    exe.poison = True
    for got, want in zip(exe(x), f(x), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("taken", [1.0, -1.0])
def test_a_branch_is_poisoned_with_its_program(taken: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that write nothing leave what their outputs held before."""
    nothing = lambda *args, **kwargs: lambda *tensors: None  # noqa: E731
    for module in ("steps.launch_of", "straight.launch_of", "straight.on_one_thread"):
        monkeypatch.setattr(f"fusebound.runtime.{module}", nothing)

    def f(p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(p > 0, lambda x: x.exp() + 1, lambda x: x.neg() * 2, (x,))

    x = torch.ones(64)
    exe = built(f, torch.tensor(taken), x)
    exe.poison = True
    assert exe(torch.tensor(taken), x).isnan().all()


def normed(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.nn.functional.layer_norm(x + 1, (257,))).sum(-1)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x = torch.randn(600, 257)
    results = [built(normed, x, threads=n)(x) for n in (1, 2, 5)]
    assert all(torch.equal(r, results[0]) for r in results)


def test_a_forked_child_runs_kernels() -> None:
    x = torch.randn(600, 257)
    exe = built(normed, x, threads=2)
    want = exe(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(exe(x), want) else 1)
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0


def test_threads_share_an_executable() -> None:
    x, i = torch.randn(50, 33), torch.tensor([0, 49, 7])
    wrong = torch.tensor([0, 50, 7])
    exe = built(pick, x, i)
    want = pick(x, i)
    faults: list[str] = []

    def work(fails: bool) -> None:
        for _ in range(200):
            try:
                good = torch.equal(exe(x, wrong if fails else i), want)
            except IndexError:
                good = fails
            if not good:
                faults.append("a flag went to another thread")

    threads = [threading.Thread(target=work, args=(k % 2 == 0,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_inputs_of_another_layout_are_copied() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + 1)

    exe = built(f, torch.randn(9, 33))
    x = torch.randn(33, 9).t()
    torch.testing.assert_close(exe(x), f(x))


def test_lazily_negated_tensors_are_read_with_their_sign() -> None:
    """`z.conj().imag` is memory with a mark that its sign is still to be changed: kernels read memory."""
    z = torch.randn(5, 33, dtype=torch.complex64)
    x = z.conj().imag
    assert x.is_neg()

    def inside(z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return z.conj().imag * 2 + 1, z.mH.imag.sum(0) * 2, NEG_VIEW(z.real).reshape(-1) * 2 + 1

    torch.testing.assert_close(built(inside, z)(z), inside(z))

    def update(z: torch.Tensor) -> torch.Tensor:
        return z.conj().imag.mul_(2) + 1

    exe, given, eager = built(update, z.clone()), z.clone(), z.clone()
    torch.testing.assert_close(exe(given), update(eager))
    torch.testing.assert_close(given, eager)

    def outside(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    torch.testing.assert_close(built(outside, z.imag)(x), outside(x))
    with pytest.raises(UsageError, match="negative view"):
        built(lambda x: x.mul_(2) + 1, z.imag.clone())(NEG_VIEW(z.imag.clone()))


def test_a_profile_names_every_group() -> None:
    x = torch.randn(9, 257)
    exe = built(normed, x)
    times = exe.profile((x,), rounds=2)
    assert times.keys() == {g.id for g in exe.plan.groups}
    assert all(t > 0 for t in times.values())


def test_inputs_that_a_copy_changes_are_named_with_its_bytes() -> None:
    def stencil(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        y = u[2:] + u[:-2]
        u.add_(torch.relu(v))
        return y * 2

    def plain(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return u.add_(torch.relu(v * 2))

    u, v = torch.randn(32, 100), torch.randn(32, 100)
    exe = built(stencil, u, v)
    assert exe.copied_back == {"u": 2 * u.nbytes}
    said = [w for w in bench(exe, exe.captured, (u, v), rounds=3).warnings if "changed by a copy" in w]
    assert said == ["u: changed by a copy at the end, 25,600 bytes that the prediction leaves out"]
    assert built(plain, u, v).copied_back == {}


def test_kernels_have_telling_names_in_profiles() -> None:
    x = torch.randn(9, 257)
    exe = built(normed, x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        exe(x)
    names = {e.key for e in seen.key_averages()}
    assert exe.kernels[0].name in names and "layer_norm" in exe.kernels[0].name


def test_a_large_update_of_misaligned_memory() -> None:
    """Beyond the last-level cache kernels store past it, which needs alignment that a user's view may lack."""

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        x.mul_(0.5).add_(y)

    target = replace(get("cpu-avx512"), l3_bytes=1 << 12)
    y = torch.randn(5000)
    captured = capture(step, (torch.randn(5000), y))
    exe = build(plan(captured.graph, target=target, expected_calls=10**9), captured, target=target)
    assert exe.kernels
    x = torch.randn(5001)[1:]
    want = x.clone()
    step(want, y)
    exe(x, y)
    torch.testing.assert_close(x, want)


def test_stores_past_the_cache() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + 1)

    target = replace(get("cpu-avx512"), l3_bytes=1 << 12)
    x = torch.randn(80, 256)
    captured = capture(f, (x,))
    exe = build(plan(captured.graph, target=target, expected_calls=10**9), captured, target=target)
    assert "streaming" in exe.kernels[0].source and "nontemporal" in exe.kernels[0].llvm
    torch.testing.assert_close(exe(x), f(x))


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.unsqueeze(1).reciprocal_(),
        lambda x: x.unflatten(1, (1, -1)).mul_(3),
        lambda x: x.permute(1, 0).masked_fill_(x.t() > 0, 2),
    ],
)
@pytest.mark.parametrize("policy", ["tile", "none"])
def test_a_view_that_is_written_and_returned_shows_an_input_with_gaps(
    write: Callable[[torch.Tensor], torch.Tensor], policy: str
) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return write(x)

    x, y = torch.arange(1.0, 61).view(3, 20)[:, ::2], torch.arange(1.0, 61).view(3, 20)[:, ::2]
    captured = capture(fn, (x,))
    exe = build(plan(captured.graph, target=get("cpu-avx512"), policy=policy), captured)
    mine, theirs = exe(x), fn(y)
    assert torch.equal(mine, theirs)
    assert torch.equal(x, y)
    assert (mine.data_ptr(), mine.stride()) == (x.data_ptr(), theirs.stride())


def test_a_write_into_what_has_strides_of_the_run() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        found = x.nonzero()
        found[0, :1].copy_(found.flip(0)[0, :1])
        return found

    x = torch.tensor([[0, 1, 0], [1, 1, 0]])
    captured = capture(fn, (x,))
    exe = build(plan(captured.graph, target=get("cpu-avx512")), captured)
    assert torch.equal(exe(x), fn(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_running_statistics_keep_their_type(dtype: torch.dtype) -> None:
    def fn(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
        return F.instance_norm(x, mean, var, momentum=0.5).neg().neg()

    def args() -> tuple[torch.Tensor, ...]:
        return (
            torch.linspace(-3, 5, 125).reshape(5, 5, 5).to(dtype),
            torch.ones(5).to(dtype),
            torch.ones(5).to(dtype),
        )

    own, eager = args(), args()
    built(fn, *own)(*own)
    fn(*eager)
    for mine, theirs in zip(own, eager, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2 * torch.finfo(dtype).eps, atol=0)


def test_unpooling_keeps_channels_last() -> None:
    x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2).neg().neg()

    got = built(fn, x)(x)
    assert torch.equal(got, fn(x)) and got.stride() == fn(x).stride()


def test_a_type_that_tracing_got_wrong_is_refused() -> None:
    with torch.library._scoped_library("fusebound_test", "DEF") as library:
        library.define("narrow(Tensor x) -> Tensor")
        library.impl("narrow", lambda x: x.bfloat16(), "CPU")
        library._register_fake("narrow", torch.empty_like)
        x = torch.randn(8, 64)
        exe = built(lambda x: torch.ops.fusebound_test.narrow(x).neg().neg().exp(), x)
        with pytest.raises(UsageError, match="gives bfloat16, tracing has said float32"):
            exe(x)


@pytest.mark.parametrize("error", [BuildError("writes outside of its outputs"), MemoryError()])
def test_what_is_no_fault_of_the_arguments_is_not_looked_for_in_eager(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    for module in ("steps", "straight"):
        monkeypatch.setattr(f"fusebound.runtime.{module}.launch_of", lambda *_: fail)
    x, i = torch.randn(50, 33), torch.tensor([0, 49, 7])
    exe = built(pick, x, i)
    monkeypatch.setattr(exe, "_as_operator", lambda op: pytest.fail(f"{op.name} runs once more"))
    with pytest.raises(type(error)):
        exe(x, i)
