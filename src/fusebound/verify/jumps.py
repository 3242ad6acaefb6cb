"""Floating results that lie on a jump: where the program, its intermediates moved by an ULP, gives another value.

A top-k of nearly equal scores, or `fmod` next to a multiple, turns a rounding into another row or another number; which
one eager has is luck.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from fusebound.verify.bits import ulp

_FAR = 2.0**10
"""A jump is so many times the usual move of an element, and so many ULP."""
_NEAR = 2.0**-4
"""Share of a jump by which a result may miss where it leads to, where that is less than `_FAR`."""
_REACH = 2.0
"""How many times smaller than the moved references beside a pole a result may be."""


def on_jump(fused: torch.Tensor, exact: torch.Tensor, shaken: Iterable[torch.Tensor]) -> torch.Tensor:
    """Mask of the elements of `fused` that lie where a jump leads to.

    `exact` is the float64 reference and `shaken` are references whose intermediates moved by an ULP, all of the shape
    of `fused`; one of another shape, whose size itself lies on a jump, says nothing here.
    """
    mine, found = fused.to(torch.float64), torch.zeros_like(fused, dtype=torch.bool)
    others = [s for s in shaken if s.shape == exact.shape]
    moves = [(s - exact).abs() for s in others]
    usual = min(map(_usual, moves), default=0.0)
    for other, moved in zip(others, moves, strict=True):
        far = _apart(other, exact) | (moved > _FAR * ulp(exact, fused.dtype).clamp_(min=usual))
        reach = torch.minimum(_NEAR * moved, _FAR * ulp(other, fused.dtype).clamp_(min=usual))
        near = (mine == other) | ((mine - other).abs() <= reach)
        at_a_pole = ~(mine.isfinite() | other.isfinite())
        beside_it = exact.isinf() & mine.isfinite() & (mine.abs() >= other.abs() / _REACH)
        found |= far & (near & ~_apart(mine, other) | at_a_pole | beside_it)
    return found


def _usual(moves: torch.Tensor) -> float:
    """The median move of the elements that moved at all and not to infinity."""
    moved = moves[(moves != 0) & moves.isfinite()]
    return float(moved.median()) if moved.numel() else 0.0


def _apart(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Whether two are finite and not, or zeros of different signs."""
    zeros = (a == 0) & (b == 0) & (a.signbit() != b.signbit())
    return (
        zeros | (a.isfinite() != b.isfinite()) | (a.isinf() & b.isinf() & (a != b)) | (a.isnan() != b.isnan())
    )
