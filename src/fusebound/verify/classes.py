"""Changes of class: elements that are NaN, infinite, finite, or a zero of another sign than eager's.

Each kind is decided by the reference rounded to the output's type. "finiteness gained" and "finiteness lost" are the
two directions of an overflow that fusing removes or introduces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from fusebound.analysis.numerics import MAX_SLACK, MAX_ULP
from fusebound.verify.bits import ulp

GAINED = "finiteness gained"
MISSED = "another number"
NO_WORSE = "other than eager's, no worse"
KINDS = {
    GAINED: "finite and fp64's number, where eager is not finite",
    NO_WORSE: "fp64's class where eager has another; not finite where eager is not either and fp64 is; an infinity"
    " where eager has NaN and fp64 the other one; another number where eager has NaN",
    MISSED: "finite where eager is infinite, but more than 4 ULP, a thousandth, and what roundings explain from fp64",
    "finiteness lost": "not finite where eager and fp64 are",
    "not finite, hidden": "finite where eager and fp64 are not",
    "another infinity or NaN": "not finite, and neither eager's class nor fp64's",
    "signed zero": "a zero whose sign is neither eager's nor fp64's",
    "subnormal lost": "zero where fp64 is subnormal, by more than 4 of its steps and twice eager's errors on such",
    "another value": "an integer that is not eager's, where fp64 and eager agree",
}
"""Every kind and what it means; the first two are allowed."""
ALLOWED = (GAINED, NO_WORSE)


_GIVEN_AWAY = 2.0**-10
"""Share of its size by which a number may miss where eager has an infinity: fused too may lose a small term to an
overflow."""


@dataclass(frozen=True, slots=True)
class ClassChange:
    """`count` elements that changed by one of `KINDS`, and the first of them in words."""

    kind: str
    count: int
    example: str = ""

    @property
    def ok(self) -> bool:
        return self.kind in ALLOWED

    def __str__(self) -> str:
        more = f" ({self.count} elements)" if self.count > 1 else ""
        return f"{self.kind}{more}: {self.example}"


def changes(
    fused: torch.Tensor, eager: torch.Tensor, nearest: torch.Tensor, dtype: torch.dtype,
    eager_lost: Callable[[], float],
) -> Iterator[tuple[str, torch.Tensor]]:  # fmt: skip
    """The masks of all kinds that occur, for float64 tensors; `nearest` is the reference in the output's type `dtype`.

    `eager_lost` gives eager's `subnormal_error` over the whole output, of which these may be a piece.
    """
    found = [*_zeros(fused, eager, nearest), *_flushed(fused, eager, nearest, dtype, eager_lost)]
    if not bool((fused.isfinite() & eager.isfinite() & nearest.isfinite()).all()):
        found += _classes(fused, eager, nearest, dtype)
    return ((kind, mask) for kind, mask in found if bool(mask.any()))


def _classes(
    fused: torch.Tensor, eager: torch.Tensor, nearest: torch.Tensor, dtype: torch.dtype
) -> Iterator[tuple[str, torch.Tensor]]:
    mine, theirs, true = (_class(t) for t in (fused, eager, nearest))
    differs = mine != theirs
    gained = differs & (mine == 0) & (true == 0)
    true_number = nearest.nan_to_num()
    near = (fused - nearest).abs() <= (MAX_ULP * ulp(true_number, dtype)).maximum(
        _GIVEN_AWAY * true_number.abs()
    )
    yield GAINED, gained & near
    yield MISSED, gained & ~near & (theirs != 3)
    yield NO_WORSE, gained & ~near & (theirs == 3)
    yield "finiteness lost", differs & (theirs == 0) & (true == 0)
    yield "not finite, hidden", differs & (mine == 0) & (true != 0)
    rest = differs & (mine != 0) & ~((theirs == 0) & (true == 0))
    allowed = (mine == true) | (true == 0) | ((theirs == 3) & (true != 3) & (mine != 3))
    yield NO_WORSE, rest & allowed
    yield "another infinity or NaN", rest & ~allowed


def _class(t: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 +Inf, 2 -Inf, 3 NaN."""
    code = (t == float("inf")).to(torch.int8)
    code += (t == float("-inf")).to(torch.int8) * 2
    return code.add_(t.isnan().to(torch.int8) * 3)


def _zeros(
    fused: torch.Tensor, eager: torch.Tensor, nearest: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    zeros = (fused == 0) & (eager == 0)
    if bool(zeros.any()):
        flipped = zeros & (fused.signbit() != eager.signbit())
        wrong = flipped & (nearest == 0) & (fused.signbit() != nearest.signbit())
        yield "signed zero", wrong
        yield NO_WORSE, flipped & ~wrong


def _flushed(
    fused: torch.Tensor, eager: torch.Tensor, nearest: torch.Tensor, dtype: torch.dtype,
    eager_lost: Callable[[], float],
) -> Iterator[tuple[str, torch.Tensor]]:  # fmt: skip
    """The bound on the largest error, over the subnormal numbers alone: beside larger elements an error of their size
    says nothing."""
    lost = (fused == 0) & _subnormal(eager, nearest, dtype)
    if bool(lost.any()):
        info = torch.finfo(dtype)
        limit = max(MAX_SLACK * eager_lost(), MAX_ULP * info.smallest_normal * info.eps)
        yield "subnormal lost", lost & (nearest.abs() > limit)


def subnormal_error(eager: torch.Tensor, nearest: torch.Tensor, dtype: torch.dtype) -> float:
    """Eager's largest error on subnormal numbers; one that it has lost itself is no measure for the others."""
    return float(torch.where(_subnormal(eager, nearest, dtype), (eager - nearest).abs(), 0.0).amax())


def _subnormal(eager: torch.Tensor, nearest: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Where the reference is subnormal and eager is not zero."""
    least = torch.finfo(dtype).smallest_normal
    return (nearest != 0) & (nearest.abs() < least) & (eager != 0) & eager.isfinite()


def merged(a: tuple[ClassChange, ...], b: tuple[ClassChange, ...]) -> tuple[ClassChange, ...]:
    """Counts added up by kind, with the first example; what is not allowed comes first."""
    found: dict[str, ClassChange] = {}
    for c in (*a, *b):
        held = found.get(c.kind)
        found[c.kind] = c if held is None else replace(held, count=held.count + c.count)
    return tuple(sorted(found.values(), key=lambda c: c.ok))
