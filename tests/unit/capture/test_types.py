"""Types that the framework's kernels refuse: a compiled function raises what eager raises."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fusebound.capture.torch import capture
from fusebound.engine.compile import EagerNotice, Options, compile
from fusebound.errors import CaptureError

OPTIONS = Options(contest=False, expected_calls=10**9, hardware="cpu-avx512")
FOREACH: Any = torch
MASK = torch.arange(40) > 7
WHOLE = torch.arange(40)
REAL = WHOLE + 0.5

REFUSED: list[tuple[Callable[[Tensor], Any], Tensor]] = [
    (lambda a: a.mul_(0.5) + 1, WHOLE),
    (lambda a: a.mul_(REAL) + 1, WHOLE),
    (lambda a: a.mul_(torch.tensor(0.5)) + 1, WHOLE),
    (lambda a: a.addcmul_(REAL, REAL) + 1, WHOLE),
    (lambda a: FOREACH._foreach_mul_([a], 0.5) or a + 1, WHOLE),
    (lambda a: a.mul_(2) ^ MASK, MASK),
    (lambda a: (a - True) * 2, WHOLE),
    (lambda a: (a - MASK) * 2, WHOLE),
    (lambda a: a.sub_(True) * 2, REAL),
    (lambda a: a.frac() + 1, WHOLE),
    (lambda a: a.abs() ^ a, MASK),
    (lambda a: a.floor() ^ a, MASK),
    (lambda a: a.relu() ^ a, MASK),
    (lambda a: a.addcmul(a, a) ^ a, MASK),
    (lambda a: a.cumsum_(0) ^ a, MASK),
    (lambda a: a.cumprod_(0) ^ a, MASK),
    (lambda a: torch.cumsum(WHOLE, 0, out=a) ^ a, MASK),
]

TAKEN: list[tuple[Callable[[Tensor], Any], Tensor]] = [
    (lambda a: a.mul_(2) // 3 % -5 << 1, WHOLE),
    (lambda a: a.mul_(torch.tensor(2, dtype=torch.int64)) + 1, WHOLE.to(torch.int8)),
    (lambda a: a.mul_(REAL.double()) + 1, REAL.bfloat16()),
    (lambda a: a.eq_(3).neg_() * 2, WHOLE),
    (lambda a: torch.where(a.masked_fill(MASK, 3) > 2.5, a.sigmoid(), 1) * 2, WHOLE),
    (lambda a: a.cumsum_(0) * 2 + 1, WHOLE),
    (lambda a: (a.cumsum(0) + 1) * 2, MASK),
    (lambda a: (a.sign() ^ a) & ~a.clamp(0, 1).bool(), MASK),
]


@pytest.mark.parametrize(("fn", "a"), REFUSED)
def test_a_type_that_eager_refuses_is_not_captured(fn: Callable[[Tensor], Any], a: Tensor) -> None:
    with pytest.raises(RuntimeError) as eager:
        fn(a.clone())
    with pytest.raises(CaptureError) as refused:
        capture(fn, (a.clone(),))
    assert refused.value.code == "E200"
    assert "test_types.py" in refused.value.where
    given = a.clone()
    with warnings.catch_warnings(), pytest.raises(RuntimeError) as compiled:
        warnings.simplefilter("ignore", EagerNotice)
        compile(fn, OPTIONS)(given)
    assert type(compiled.value) is type(eager.value)
    assert str(compiled.value) == str(eager.value)
    assert torch.equal(given, a)


@pytest.mark.parametrize(("fn", "a"), TAKEN)
def test_types_that_eager_takes_are_fused(fn: Callable[[Tensor], Any], a: Tensor) -> None:
    f = compile(fn, OPTIONS)
    torch.testing.assert_close(f(a.clone()), fn(a.clone()))
    assert f.executable is not None


def test_a_type_that_tracing_believes_wrongly_is_not_captured() -> None:
    def fn(a: Tensor) -> Tensor:
        (power,) = torch._foreach_pow([a], True)
        return ~power

    assert torch._foreach_pow([MASK], True)[0].dtype == torch.bool, "as eager has it; tracing has int64"
    with pytest.raises(CaptureError, match=r"bool from aten\._foreach_pow\.Scalar where tracing has int64"):
        capture(fn, (MASK,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerNotice)
        assert torch.equal(compile(fn, OPTIONS)(MASK), fn(MASK))
