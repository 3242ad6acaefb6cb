"""Changes of class: elements that are NaN, infinite, finite, or a zero of another sign than eager's.

Each kind is decided by the reference rounded to the output's type. "finiteness gained" and "finiteness lost" are the
two directions of an overflow that fusing removes or introduces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from fusebound.analysis.numerics import MAX_SLACK, MAX_ULP

GAINED = "finiteness gained"
NO_WORSE = "other than eager's, no worse"
KINDS = {
    GAINED: "finite, as fp64, where eager is not",
    NO_WORSE: "fp64's class where eager has another; not finite where eager is not either and fp64 is; an infinity"
    " where eager has NaN and fp64 the other one",
    "finiteness lost": "not finite where eager and fp64 are",
    "not finite, hidden": "finite where eager and fp64 are not",
    "another infinity or NaN": "not finite, and neither eager's class nor fp64's",
    "signed zero": "a zero whose sign is neither eager's nor fp64's",
    "subnormal lost": "zero where fp64 is subnormal, by more than 4 of its steps and twice eager's errors on such",
    "another value": "an integer that is not eager's, where fp64 and eager agree",
}
"""Every kind and what it means; the first two are allowed."""
ALLOWED = (GAINED, NO_WORSE)


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
    fused: torch.Tensor, eager: torch.Tensor, nearest: torch.Tensor, dtype: torch.dtype, *, finite: bool
) -> Iterator[tuple[str, torch.Tensor]]:
    """The masks of all kinds that occur, for float64 tensors; `nearest` is the reference in the output's type `dtype`.

    `finite` says that all three are finite everywhere, which leaves zeros.
    """
    found = (*_zeros(fused, eager, nearest), *_flushed(fused, eager, nearest, dtype))
    for kind, mask in found if finite else (*found, *_classes(fused, eager, nearest)):
        if bool(mask.any()):
            yield kind, mask


def _classes(
    fused: torch.Tensor, eager: torch.Tensor, nearest: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    mine, theirs, true = (_class(t) for t in (fused, eager, nearest))
    differs = mine != theirs
    yield GAINED, differs & (mine == 0) & (true == 0)
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
    fused: torch.Tensor, eager: torch.Tensor, nearest: torch.Tensor, dtype: torch.dtype
) -> Iterator[tuple[str, torch.Tensor]]:
    """The bound on the largest error, over the subnormal numbers alone: beside larger elements an error of their size
    says nothing. Where eager has lost one itself, that is no measure for the others.
    """
    lost = (fused == 0) & (nearest != 0) & (eager != 0)
    if bool(lost.any()):
        info, size = torch.finfo(dtype), nearest.abs()
        kept = (nearest != 0) & (size < info.smallest_normal) & (eager != 0) & eager.isfinite()
        error = torch.where(kept, (eager - nearest).abs(), 0.0).amax()
        few = MAX_ULP * info.smallest_normal * info.eps
        yield "subnormal lost", lost & kept & (size > (MAX_SLACK * error).clamp(min=few))


def merged(a: tuple[ClassChange, ...], b: tuple[ClassChange, ...]) -> tuple[ClassChange, ...]:
    """Counts added up by kind, with the first example; what is not allowed comes first."""
    found: dict[str, ClassChange] = {}
    for c in (*a, *b):
        held = found.get(c.kind)
        found[c.kind] = c if held is None else replace(held, count=held.count + c.count)
    return tuple(sorted(found.values(), key=lambda c: c.ok))
