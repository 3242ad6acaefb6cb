"""What a compiled function does to torch's generator: one seed a call, or eager's own draws in eager's order."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.unit.random.reference import seed_of_next_call

import fusebound as fb
from fusebound.engine.compile import Options, compile
from fusebound.errors import CaptureError
from fusebound.runtime.executable import Executable
from fusebound.verify.draws import CountedDraws

FLOATS = [torch.float32, torch.bfloat16, torch.float64, torch.float16]


def built(fn: Callable[..., Any], *args: Any, numerics: str = "accurate", policy: str = "tile") -> Executable:
    return fb.build(fb.plan(fb.capture(fn, *args), numerics=numerics, policy=policy, hardware="cpu-avx512"))


def every(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Every draw that has primitives, with others in between that stay with the framework."""
    own = x.clone()
    F.dropout(own, 0.5, True, True)
    low, mask = torch.native_dropout(x, 0.2, True)
    return (
        own * 2, low + 1, mask, F.dropout(x.t(), 0.4, True) - 1, torch.multinomial(torch.ones(9), 3),
        torch.bernoulli(x, 0.3) * x, torch.rand(7, 33, dtype=x.dtype) + x, torch.rand_like(x).exp(),
        torch.randperm(11), torch.randn(7, 33, dtype=x.dtype), torch.randn_like(x) * 3,
        torch.bernoulli(x.sigmoid()), torch.randint(0, 10, (4, 8)), torch.randint(5, (3,)) + 1,
        torch.empty(4, 8).uniform_(1, 3), torch.empty(8, 4, dtype=x.dtype).t().normal_(1, 2),
        F.alpha_dropout(x, 0.1, True), F.dropout2d(x[None, :, :, None], 0.3, True),
        torch.normal(0.0, 1.0, (4, 8)), torch.randint(0, 2**40, (3,)), torch.rand(3, dtype=torch.complex64),
        torch.rand(6, dtype=x.dtype),
    )  # fmt: skip


def same_run(exe: Callable[..., Any], fn: Callable[..., Any], *args: Any, draws: int = 0) -> list[Any]:
    """Both results from one state of the generator, which both leave in one state."""
    torch.manual_seed(11)
    got = exe(*args)
    after = torch.get_rng_state()
    torch.manual_seed(11)
    if draws:
        with CountedDraws(draws):
            want = fn(*args)
    else:
        want = fn(*args)
    assert torch.equal(after, torch.get_rng_state())
    return list(zip(got, want, strict=True))


@pytest.mark.parametrize("dtype", FLOATS)
def test_eager_numerics_draw_what_eager_draws(dtype: torch.dtype) -> None:
    x = torch.randn(7, 33).to(dtype)
    exe = built(every, x, numerics="eager")
    assert exe.counted_draws == 0
    for got, want in same_run(exe, every, x):
        assert torch.equal(got, want)
        assert got.stride() == want.stride()


@pytest.mark.parametrize("dtype", FLOATS)
def test_accurate_numerics_draw_by_counter(dtype: torch.dtype) -> None:
    x = torch.randn(7, 33).to(dtype)
    exe = built(every, x)
    for got, want in same_run(exe, every, x, draws=exe.counted_draws):
        assert got.stride() == want.stride()
        near = 4 * torch.finfo(dtype).eps if dtype.itemsize == 2 else 1e-5  # eager rounds every step
        torch.testing.assert_close(got, want, rtol=near, atol=near)


@pytest.mark.parametrize("layout", [(0, 1, 2), (2, 0, 1), (1, 0, 2)])
def test_eager_masks_follow_the_order_of_memory(layout: tuple[int, int, int]) -> None:
    x = torch.randn(5, 6, 7).permute(layout)
    fn = lambda x: (F.dropout(x, 0.5, True) + 1, torch.bernoulli(x, 0.5) + x, torch.rand_like(x) * x)  # noqa: E731
    for got, want in same_run(built(fn, x, numerics="eager"), fn, x):
        assert torch.equal(got, want)


def test_one_seed_a_call() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5, True) + torch.rand_like(x)

    x = torch.randn(50, 60)
    exe = built(fn, x)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = exe(x)
    left = seed_of_next_call()
    second = exe(x)
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    torch.empty((), dtype=torch.int64).random_()
    assert seed_of_next_call() == left
    torch.set_rng_state(state)
    assert torch.equal(exe(x), first)
    assert torch.equal(exe(x), second)


def test_draws_outside_keep_their_place() -> None:
    x = torch.randn(9, 33)
    exe = built(lambda x: F.dropout(x, 0.5, True), x)
    torch.manual_seed(5)
    before, got, after = torch.rand(3), exe(x), torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(before, torch.rand(3))
    with CountedDraws(1):
        torch.testing.assert_close(got, F.dropout(x, 0.5, True))
    assert torch.equal(after, torch.rand(3))


def crossing(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A draw of what a group computes, then one that depends on nothing, then the group's other operator."""
    a = x * 2
    first = torch.bernoulli(a, 0.5)
    second = torch.rand_like(y)
    return first, second, a.exp() + 1


def between(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """One draw reads the group, the next feeds it: only the generator links the two."""
    a = (x * 2).clamp(0, 1)
    first = torch.multinomial(a + 1, 2)
    second = torch.randperm(33)
    return first, a + second, a


@pytest.mark.parametrize("fn", [crossing, between])
@pytest.mark.parametrize("policy", ["none", "elementwise", "tile"])
def test_draws_keep_their_order_whatever_fuses(fn: Callable[..., Any], policy: str) -> None:
    x, y = torch.rand(9, 33), torch.rand(9, 33)
    exe = built(fn, x, y, numerics="eager", policy=policy)
    for got, want in same_run(exe, fn, x, y):
        torch.testing.assert_close(got, want)


def test_the_order_of_draws_is_an_obstacle_with_a_name() -> None:
    x, y = torch.rand(9, 33), torch.rand(9, 33)
    why = fb.can_fuse(fb.capture(between, x, y), "clamp", "add_1", hardware="cpu-avx512")
    assert why.dependence.code == "F101"


def test_a_draw_that_nobody_reads() -> None:
    """It moves eager's generator, and no other: by counter it only takes its number."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor]:
        torch.rand_like(x)
        return (torch.rand_like(x) + x,)

    x = torch.randn(9, 33)
    for numerics, draws in (("eager", 0), ("accurate", 2)):
        exe = built(fn, x, numerics=numerics)
        for got, want in same_run(exe, fn, x, draws=draws):
            torch.testing.assert_close(got, want)


def test_a_function_that_draws_in_a_branch_leaves_all_to_the_framework() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor]:
        y = torch.cond(x.sum() > 0, lambda x: F.dropout(x, 0.5, True), lambda x: x * 2, (x,))
        return (F.dropout(y, 0.5, True) + 1,)

    for x in (torch.rand(9, 33), -torch.rand(9, 33)):
        exe = built(fn, x)
        assert exe.counted_draws == 0
        for got, want in same_run(exe, fn, x):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("policy", ["none", "elementwise", "tile"])
def test_modes_of_a_module(policy: str) -> None:
    m = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.LayerNorm(33))
    x = torch.randn(9, 33)
    f = compile(m, Options(policy=policy, hardware="cpu-avx512", expected_calls=10**9, contest=False))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        got = f(x)
        torch.manual_seed(1)
        with CountedDraws(1):
            torch.testing.assert_close(got, m(x))
        m.eval()
        state = torch.get_rng_state()
        torch.testing.assert_close(f(x), m(x))
        assert torch.equal(state, torch.get_rng_state())


def _seeded(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)
    return x + torch.rand_like(x)


def _forked(x: torch.Tensor) -> torch.Tensor:
    with torch.random.fork_rng(devices=[]):
        return x + torch.rand_like(x)


@pytest.mark.parametrize("fn", [_seeded, _forked])
def test_a_function_that_sets_the_generator_is_refused(fn: Callable[..., Any]) -> None:
    state = torch.get_rng_state()
    with pytest.raises(CaptureError) as found:
        fb.capture(fn, torch.ones(3))
    assert found.value.code == "E202"
    assert "test_generator.py" in str(found.value)
    assert torch.equal(state, torch.get_rng_state())


def test_numbers_that_differ_are_an_error_of_the_comparison() -> None:
    with pytest.raises(RuntimeError, match="2 times by counter, eager 1 time"), CountedDraws(2):
        torch.rand(3)
