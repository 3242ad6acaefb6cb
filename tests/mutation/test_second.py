"""The verifier against faults and variants of an outsider: every fault caught, no variant refused.

What is a fault and what is none is shown first, with code of this file alone: the rule of the numerics contract
between the changed program, eager and the same function in float64, on a call that a fault was made for, and on drawn
and special values for a variant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.mutation.harness import Mutation, Verdict, check_mutant, rebuilt
from tests.mutation.second import Args, Change, Program, programs, subject
from tests.mutation.second_right import RIGHT
from tests.mutation.second_wrong import WRONG

INF, NAN = float("inf"), float("nan")

pytestmark = pytest.mark.usefixtures("two_threads")


@pytest.fixture
def two_threads() -> Iterator[None]:
    """A fault between threads needs two, wherever the tests run."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_is_one(name: str) -> None:
    change = WRONG[name]
    assert change.calls
    assert _broken(change, change.calls)


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_is_caught(name: str) -> None:
    verdict = _judged(name, WRONG[name])
    assert verdict.caught, verdict


@pytest.mark.parametrize("name", RIGHT)
def test_a_variant_keeps_the_rule(name: str) -> None:
    change = RIGHT[name]
    assert not _broken(change, lambda: _drawn(programs()[change.program]))


@pytest.mark.parametrize("name", RIGHT)
def test_a_variant_passes(name: str) -> None:
    verdict = _judged(name, RIGHT[name])
    assert not verdict.caught, verdict


@pytest.mark.parametrize("name", programs())
def test_an_original_keeps_the_rule(name: str) -> None:
    assert not _broken(Change(name, wrap=lambda s: s.executable()), lambda: _drawn(programs()[name]))


def _judged(name: str, change: Change) -> Verdict:
    """What the verifier says of a changed program."""
    mutation = Mutation(name, change.program, tile=change.tile, text=change.text, wrap=change.wrap)
    return check_mutant(subject(change.program), mutation)


# The rule


def _broken(change: Change, calls: Callable[[], Iterator[Args]]) -> str:
    """Make the calls, one after another, and say where a result or an argument is wrong after all of them."""
    program = programs()[change.program]
    run = _changed(change)
    made: list[tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]] = []
    for args in calls():
        try:
            eager = _with_arguments(program.fn, _copies(args))
        except (IndexError, RuntimeError):
            return "" if _raises(run, args) else "does not raise what eager raises"
        exact = _with_arguments(program.exact or program.fn, _copies(args, wide=True))
        results = _flat(run(*args))
        made.append(([*results, *_copies(args)], eager, exact))
    for call, values in enumerate(made):
        for i, (got, eager, exact) in enumerate(zip(*values, strict=True)):
            if why := _differs(got, eager, exact):
                return f"call {call}, value {i}: {why}"
    return ""


def _raises(run: Callable[..., Any], args: Args) -> bool:
    try:
        run(*args)
    except (IndexError, RuntimeError):
        return True
    return False


def _changed(change: Change) -> Callable[..., Any]:
    s = subject(change.program)
    if change.wrap:
        return change.wrap(s)
    kernel = s.kernels["g0"]
    program = change.tile(kernel.program) if change.tile else kernel.program
    return s.executable(g0=rebuilt(kernel, program, change.text))


def _with_arguments(fn: Callable[..., Any], args: list[torch.Tensor]) -> list[torch.Tensor]:
    """The results, and what the arguments are afterwards."""
    return [*_flat(fn(*args)), *args]


def _copies(args: Args, *, wide: bool = False) -> list[torch.Tensor]:
    """The tensors in memory of their own, with the layouts and overlaps that they had; floats in float64 if `wide`."""
    bases: dict[int, torch.Tensor] = {}
    for t in args:
        memory = t.untyped_storage()
        base = torch.empty(0, dtype=t.dtype).set_(memory)
        bases[memory.data_ptr()] = base.double() if wide and t.is_floating_point() else base.clone()
    return [
        bases[t.untyped_storage().data_ptr()].as_strided(t.shape, t.stride(), t.storage_offset())
        for t in args
    ]


def _flat(results: Any) -> list[torch.Tensor]:
    return [] if results is None else [results] if isinstance(results, torch.Tensor) else list(results)


def _differs(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> str:
    """How a result breaks the contract; "" where it keeps it.

    Its error against float64 may be 1.25 times eager's (root mean square) and twice (at most), or 2 and 4 ULP; NaN,
    infinities and signs of zero are eager's or those of float64.
    """
    if not got.is_floating_point():
        return "" if torch.equal(got, eager) else f"{int((got != eager).sum())} of {got.numel()} differ"
    near = exact.to(got.dtype)
    kinds = [_kind(t) for t in (got, eager, near)]
    changed = (kinds[0] != kinds[1]) & (kinds[0] != kinds[2])
    if changed.any():
        at = int(changed.flatten().nonzero()[0])
        return f"class changed at {at}: {got.flatten()[at]}, eager {eager.flatten()[at]}, exact {near.flatten()[at]}"
    both = torch.isfinite(got) & torch.isfinite(eager) & torch.isfinite(near)
    g, e, x = (t[both].double() for t in (got, eager, exact))
    if not g.numel():
        return ""
    error, allowed = (g - x).abs(), (e - x).abs()
    if bool((error > torch.maximum(2 * allowed.max(), 4 * _ulp(x, got.dtype))).any()):
        return f"an error of {float(error.max()):.3g}, eager has {float(allowed.max()):.3g}"
    rms = [float(t.square().mean().sqrt()) for t in (error, allowed, x)]
    floor = 2 * float(_ulp(torch.tensor([rms[2]], dtype=torch.float64), got.dtype))
    return (
        f"an rms error of {rms[0]:.3g}, eager has {rms[1]:.3g}" if rms[0] > max(1.25 * rms[1], floor) else ""
    )


def _kind(t: torch.Tensor) -> torch.Tensor:
    """0 for numbers, else one code each for NaN, the infinities and a negative zero."""
    negative_zero = (t == 0) & torch.signbit(t)
    return torch.isnan(t) * 1 + (t == INF) * 2 + (t == -INF) * 3 + negative_zero * 4


def _ulp(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The spacing of `dtype` at each value, in float64."""
    info = torch.finfo(dtype)
    scale = torch.frexp(x.abs().clamp(info.tiny, info.max)).exponent - 1
    return torch.ldexp(torch.full_like(x, info.eps), scale)


# Values


def _drawn(program: Program) -> Iterator[Args]:
    """A dozen kinds of values for each floating-point argument, three times each; of a large program once."""
    for seed in range(1 if max(t.numel() for t in program.args) > 1000 else 3):
        g = torch.Generator().manual_seed(seed)
        for fill in _FILLS:
            yield tuple(_argument(t, program, fill, g) for t in program.args)


def _argument(
    t: torch.Tensor, program: Program, fill: Callable[..., Any], g: torch.Generator
) -> torch.Tensor:
    if t.is_floating_point():
        return fill(torch.randn(t.shape, generator=g), g).to(t.dtype)
    if t.dtype == torch.bool:
        return torch.rand(t.shape, generator=g) < 0.5
    low, high = program.integers
    drawn = torch.randint(
        low, high + 1, t.shape, generator=g, dtype=t.dtype if high < 2**31 - 1 else torch.int64
    )
    return drawn.to(t.dtype).where(drawn != 0, 1)


def _sprinkled(*values: float) -> Callable[..., torch.Tensor]:
    def fill(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
        for value in values:
            x = x.where(torch.rand(x.shape, generator=g) > 0.05, torch.tensor(value))
        return x

    return fill


_FILLS: list[Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = [
    lambda x, _: x,
    lambda x, _: x * 1e-6,
    lambda x, _: x * 1e3,
    lambda x, _: x * 1e18,
    lambda x, _: x * 1e-40,
    lambda x, _: x + 1e4,
    lambda x, _: x - 300,
    lambda x, _: (x * 4).round() / 16,
    lambda x, _: torch.full_like(x, 3.7),
    lambda x, _: torch.full_like(x, -INF),
    _sprinkled(NAN, 0.0, -0.0),
    _sprinkled(INF, -0.0, 1e-41),
    _sprinkled(-INF, 3e38, -3e38),
]
