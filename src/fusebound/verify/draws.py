"""Eager and the oracle on the random numbers that a program draws by counter (docs/random.md).

A mode stands in for the framework's generator: each draw that capture turns into primitives is answered from the
call's seed by a plain implementation. What capture leaves to the framework draws from the generator as ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from fusebound.analysis import philox
from fusebound.capture.draws import argument
from fusebound.capture.encode import words
from fusebound.capture.lower.random import LARGEST
from fusebound.ir.dtypes import KERNEL_DTYPES
from fusebound.runtime.seed import draw_seed
from fusebound.words import count

_DIGITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_OPTIONS = ("dtype", "layout", "device", "pin_memory", "memory_format")


class CountedDraws(TorchDispatchMode):
    """Answers the draws of one call in the order in which they are made.

    Normal numbers are computed in float32 for float32 and narrower types, as eager does, or in float64 with `exact`.
    Entering takes a seed from torch's default generator, as a call of the program does. `expected` is how many draws
    the program's graph has: leaving after another number raises RuntimeError, for then the two would not be one
    stream.
    """

    def __init__(self, expected: int, *, exact: bool = False) -> None:
        super().__init__()
        self._expected, self._exact = expected, exact

    def __enter__(self) -> CountedDraws:
        self._seed, self._count = int(draw_seed()), 0
        return super().__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        if error is None and self._count != self._expected:
            raise RuntimeError(
                f"the program draws {count(self._expected, 'time')} by counter, eager {count(self._count, 'time')}"
            )

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}

        def given(name: str) -> Any:
            return argument(func, name, args, kwargs)

        rule = _RULES.get(str(func))
        if rule is None or given("generator") is not None:
            return func(*args, **kwargs)
        if str(func) == "aten.native_dropout.default":
            return self._native_dropout(*args)
        into = _target(func, args, {k: kwargs[k] for k in _OPTIONS if kwargs.get(k) is not None}, given)
        kernels = str(into.dtype).removeprefix("torch.") in KERNEL_DTYPES
        if not into.numel() or into.device.type != "cpu" or not kernels or _wide_range(func, given):
            return func(*args, **kwargs)
        narrow = into.dtype != torch.float64 and not self._exact
        real = torch.float32 if narrow else torch.float64
        return into.copy_(rule(self._words(into), into.dtype, real, given))

    def _words(self, like: torch.Tensor) -> list[torch.Tensor]:
        """The four random words of every element, signed, in int64."""
        found = philox.words(self._seed, self._count, tuple(like.shape))
        self._count += 1
        return [torch.from_numpy(np.asarray(w)).to(torch.int64) for w in found]

    def _native_dropout(self, x: torch.Tensor, p: float, train: bool | None) -> Any:
        if train is False or not x.numel():
            return torch.ops.aten.native_dropout.default(x, p, train)
        mask = _keep(self._words(x), 1.0 - p).to(torch.bool)
        return x.mul(mask).mul_(1 / (1.0 - p) if p != 1 else 0.0), mask


Given = Callable[[str], Any]


def _wide_range(func: OpOverload, given: Given) -> bool:
    """Whether integers are asked for of a range that one word does not cover."""
    return "randint" in func._schema.name and not 0 < given("high") - (given("low") or 0) <= LARGEST


def _target(func: OpOverload, args: Sequence[Any], options: dict[str, Any], given: Given) -> torch.Tensor:
    """The memory that a draw fills: its operand, memory like it, or memory of the size asked for."""
    if func._schema.is_mutable:
        return args[0]
    if func.namespace == "fusebound":
        return torch.empty_strided(given("size"), given("stride"), dtype=given("dtype"))
    if str(func) in ("aten.bernoulli.p", "aten.bernoulli.default"):
        return torch.empty_like(args[0], memory_format=torch.contiguous_format)
    if func._schema.arguments[0].name == "self":
        return torch.empty_like(args[0], **options)
    if "randint" in func._schema.name:
        options.setdefault("dtype", torch.int64)
    return torch.empty(given("size"), **options)


def _keep(words: Sequence[torch.Tensor], p: float) -> torch.Tensor:
    return (words[0] + 2**31 < round(p * 2**32)).to(torch.float64)


def _unit(words: Sequence[torch.Tensor], dtype: torch.dtype, real: torch.dtype) -> torch.Tensor:
    """In [0, 1), exactly, for numbers of `dtype`."""
    if dtype == torch.float64:
        return ((words[0] & (1 << 27) - 1) * 2**26 + (words[1] & (1 << 26) - 1)).to(dtype) * 2.0**-53
    digits = _DIGITS[dtype]
    return (words[0] & (1 << digits) - 1).to(real) * 2.0**-digits


def _bernoulli(
    words: Sequence[torch.Tensor], dtype: torch.dtype, real: torch.dtype, given: Given
) -> torch.Tensor:
    return _keep(words, given("p"))


def _bernoulli_each(
    words: Sequence[torch.Tensor], dtype: torch.dtype, real: torch.dtype, given: Given
) -> torch.Tensor:
    p = given("self")
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise RuntimeError("a probability outside [0, 1]")
    return _unit(words, torch.float64 if dtype == torch.float64 else torch.float32, real) < p


def _uniform(
    words: Sequence[torch.Tensor], dtype: torch.dtype, real: torch.dtype, given: Given
) -> torch.Tensor:
    low, high = (given("from"), given("to")) if given("low") is None else (given("low"), given("high"))
    if low is None or (low, high) == (0, 1):
        return _unit(words, dtype, real)
    x = (_unit(words, dtype, real) * (high - low) + low).to(dtype)
    return torch.where(x < high, x, low)


def _normal(
    words: Sequence[torch.Tensor], dtype: torch.dtype, real: torch.dtype, given: Given
) -> torch.Tensor:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    half = 2 if wide == torch.float64 else 1
    radius = torch.sqrt(-2.0 * torch.log(1.0 - _unit(words[:half], wide, real)))
    z = radius * _sine_of_turn(_unit(words[half:], wide, real) - 0.5)
    mean, std = given("mean"), given("std")
    return z if mean is None else z * std + mean


def _sine_of_turn(t: torch.Tensor) -> torch.Tensor:
    """sin(2πt) for |t| ≤ ½, folded so that it is accurate where it vanishes."""
    folded = torch.where(t > 0.25, 0.5 - t, torch.where(t < -0.25, -0.5 - t, t))
    return torch.sin(folded * (2 * math.pi))


def _integers(
    words: Sequence[torch.Tensor], dtype: torch.dtype, real: torch.dtype, given: Given
) -> torch.Tensor:
    low = given("low") or 0
    return low + ((words[0] + 2**31) * (given("high") - low) >> 32)


_RULES: dict[str, Callable[[Sequence[torch.Tensor], torch.dtype, torch.dtype, Given], torch.Tensor]] = {
    **dict.fromkeys(words("""
        aten.bernoulli.p aten.bernoulli_.float aten.native_dropout.default fusebound.bernoulli.default
    """), _bernoulli),
    "aten.bernoulli.default": _bernoulli_each,
    **dict.fromkeys(words("""
        aten.uniform_.default aten.rand.default aten.rand_like.default fusebound.uniform.default
    """), _uniform),
    **dict.fromkeys(words("""
        aten.normal_.default aten.normal.float_float aten.randn.default aten.randn_like.default
        fusebound.normal.default
    """), _normal),
    **dict.fromkeys(words("""
        aten.randint.default aten.randint.low aten.randint_like.default aten.randint_like.low_dtype
    """), _integers),
}  # fmt: skip
