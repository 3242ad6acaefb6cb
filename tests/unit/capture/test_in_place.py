"""In-place operators on memory that they read: refused with the user's line, and left to eager."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fusebound.capture.torch import capture
from fusebound.engine.compile import EagerNotice, Options, compile
from fusebound.errors import CaptureError, FuseboundError

OPTIONS = Options(contest=False, expected_calls=10**9, hardware="cpu-avx512")
FOREACH: Any = torch
FLIPPED = torch.tensor([3, 2, 1, 0])

SELF_OVERLAPPING: list[Callable[[Tensor, Tensor], Any]] = [
    lambda a, b: a.add_(a.t()),
    lambda a, b: a[1:].add_(a[:-1]),
    lambda a, b: a.diagonal().add_(a[0]),
    lambda a, b: a.copy_(a.t()),
    lambda a, b: a[0].expand(4, 4).add_(1),
    lambda a, b: a[:1].expand(4, 4)[0].add_(1),
    lambda a, b: a.view(-1).unfold(0, 4, 2).add_(1),
    lambda a, b: a.as_strided((3, 3), (2, 1)).mul_(2),
    lambda a, b: a.addr_(a[0], b[1]),
    lambda a, b: torch.sum(a, 0, out=a[0]),
    lambda a, b: torch.tril(a.t(), out=a),
    # Operators that are not pointwise may not even read the very elements that they write.
    lambda a, b: a.addmm_(a, b),
    lambda a, b: torch.mm(a, b, out=a),
    lambda a, b: torch.cat((a[1:], a[:1]), out=a),
    lambda a, b: a.index_add_(0, FLIPPED, a),
    lambda a, b: a.index_put_((FLIPPED,), a),
    lambda a, b: a.index_copy_(0, FLIPPED, a),
    lambda a, b: a.scatter_(0, FLIPPED[:, None].expand(4, 4), a),
    lambda a, b: a.scatter_add_(0, FLIPPED[:, None].expand(4, 4), a),
    lambda a, b: a.masked_scatter_(b > 0, a),
]
"""Where eager raises, or what it gives depends on the order of its loop."""

ONE_AFTER_ANOTHER: list[Callable[[Tensor, Tensor], Any]] = [
    lambda a, b: FOREACH._foreach_add_([a, b], [b, a]),
    lambda a, b: FOREACH._foreach_mul_([a, a, b], 2.0),
    lambda a, b: FOREACH._foreach_copy_([a, b], [b, a]),
    lambda a, b: FOREACH._foreach_lerp_([a, b], [b, a], 0.5),
    lambda a, b: FOREACH._foreach_addcmul_([a, b], [b, b], [b, a], 2.0),
    lambda a, b: FOREACH._foreach_sub_([a[1:], a[:2]], 1),
    lambda a, b: FOREACH._foreach_add_([a[2:], b[:2]], [b[2:], a[1:3]]),
]

WINDOWS: list[Callable[[Tensor, Tensor], Any]] = [
    lambda a, b: a.unfold(0, 2, 3).mul_(2),
    lambda a, b: a.view(-1).unfold(0, 3, 3).add_(b[1, 0]),
    lambda a, b: a.unfold(0, 1, 2).select(-1, 0).neg_(),
    lambda a, b: a.unfold(1, 2, 3).split(1)[0].neg_(),
    lambda a, b: (b * 2).unfold(0, 1, 3).neg_(),
]
"""Views of windows that do not show every element, which tracing would fill with zeros."""

LEGAL: list[Callable[[Tensor, Tensor], Any]] = [
    lambda a, b: a.add_(a),
    lambda a, b: a[:2].add_(a[2:]),
    lambda a, b: a[:, ::2].mul_(a[:, 1::2]),
    lambda a, b: a.sub_(a.flip(-1)),
    lambda a, b: a.mul_(a.roll(1, 0)),
    lambda a, b: a.add_(a.t() + 1),
    lambda a, b: a[1:].copy_(a[:-1] + 1),
    lambda a, b: a.view(-1).unfold(0, 4, 4).add_(1),
    lambda a, b: torch.add(a, 1, out=a),
    lambda a, b: torch.where(a > b, a, b, out=a),
    lambda a, b: a.index_add_(0, FLIPPED, a.flip(1)),
    lambda a, b: a.masked_fill_(a.t() > 0, 3),
    lambda a, b: FOREACH._foreach_add_([a, b], [a.roll(1, 0), b.flip(0)]),
    lambda a, b: FOREACH._foreach_add_([a[:2], a[2:]], [a[:2], b[:2]]),
    lambda a, b: FOREACH._foreach_sub_([a, b], [b.clone(), a.clone()]),
    # Read at an earlier place than written: the old content, for eager too.
    lambda a, b: FOREACH._foreach_add_([b[:2], a[:2]], [a[:2], b[2:]]),
]


def arguments() -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    a, b = torch.randint(-4, 5, (2, 4, 4), generator=g).float()
    return a.clone(), b.clone()


def with_kernel(step: Callable[[Tensor, Tensor], Any]) -> Callable[[Tensor, Tensor], Tensor]:
    """The step beside a chain that is worth a kernel, so that a wrong graph shows."""

    def fn(a: Tensor, b: Tensor) -> Tensor:
        step(a, b)
        return (a * 2 + b).abs() - 1

    return fn


def outcome(fn: Callable[..., Any]) -> Any:
    """The result and the arguments afterwards, or the exception."""
    a, b = arguments()
    try:
        return [fn(a, b), a, b]
    except FuseboundError:
        raise
    except Exception as e:
        return type(e), str(e)


def same(got: Any, want: Any) -> bool:
    if isinstance(want, tuple) or isinstance(got, tuple):
        return got == want
    return all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (SELF_OVERLAPPING, "reads memory that it overwrites|elements share memory"),
        (WINDOWS, "writes through windows"),
        (ONE_AFTER_ANOTHER, "what it has written in an earlier one"),
    ],
)
def test_refused_and_left_to_eager(steps: list[Callable[[Tensor, Tensor], Any]], text: str) -> None:
    for step in steps:
        compiled = compile(with_kernel(step), OPTIONS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EagerNotice)
            for _ in range(2):
                assert same(outcome(compiled), outcome(with_kernel(step))), compiled.reason
        assert compiled.reason.startswith("E206")
        assert re.search(text, compiled.reason)
        assert re.search(r"test_in_place\.py:\d+: .*lambda a, b", compiled.reason)


def test_legal_steps_are_fused() -> None:
    for k, step in enumerate(LEGAL):
        compiled = compile(with_kernel(step), OPTIONS)
        for _ in range(2):
            assert same(outcome(compiled), outcome(with_kernel(step))), k
        assert compiled.executable is not None, (k, compiled.reason)


def test_an_out_argument_is_resized() -> None:
    def fn(a: Tensor, b: Tensor) -> Tensor:
        return torch.add(a, b, out=a[:2]).abs()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(CaptureError, match="the shape of its out=") as error:
            capture(fn, arguments())
        assert error.value.code == "E202"
        assert same(outcome(compile(fn, OPTIONS)), outcome(fn))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_of_several_out_arguments_has_another_type(dtype: torch.dtype) -> None:
    def fn(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        torch.aminmax(x, dim=0, out=(low, high))
        return (low + high).abs()

    args = torch.randn(4, 4), torch.empty(4, dtype=dtype), torch.empty(4)
    compiled = compile(fn, OPTIONS)
    if dtype == torch.float32:
        assert torch.equal(compiled(*args), fn(*args)) and compiled.executable is not None
        return
    with pytest.raises(CaptureError, match="out= of another type") as error:
        capture(fn, args)
    assert error.value.code == "E202"
    with pytest.warns(EagerNotice), pytest.raises(RuntimeError, match="to have dtype float, but got double"):
        compiled(*args)


def test_an_argument_is_given_other_memory() -> None:
    def fn(a: Tensor, b: Tensor) -> Tensor:
        a.data = b * 2
        return (a + 1).abs()

    with pytest.raises(CaptureError, match="memory behind an argument") as error:
        capture(fn, arguments())
    assert error.value.code == "E202"
    assert "a.data = b * 2" in error.value.where


def test_tracing_leaves_the_diagnostic_to_us(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CaptureError):
        capture(lambda a, b: a[:, 1:].add_(b), arguments())
    assert capfd.readouterr().err == ""


def _broadcast(x: Tensor, y: Tensor) -> Any:
    d = torch.nn.functional.mse_loss(x, y) + 1
    x.index_fill_(0, y.argmax().reshape(1), 3)
    return d


def _grid(x: Tensor, y: Tensor) -> Any:
    a, b = torch.meshgrid(x, y, indexing="ij")
    x.mul_(3)
    return a * b


def _at_least(x: Tensor, y: Tensor) -> Any:
    a, b = torch.atleast_2d(x, y)
    a.add_(1)
    return x * 2, b + x


@pytest.mark.parametrize("step", [_broadcast, _grid, _at_least])
def test_views_that_their_schemas_do_not_tell_of(step: Callable[[Tensor, Tensor], Any]) -> None:
    x, y = torch.rand(31, dtype=torch.float64), torch.rand(31, dtype=torch.float64)
    given = x.clone(), y.clone()
    torch.testing.assert_close(compile(step, OPTIONS)(x, y), step(*given))
    assert torch.equal(x, given[0]) and torch.equal(y, given[1])
