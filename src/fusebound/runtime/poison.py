"""Output memory that shows a kernel's faults: poison where it has to write, guards where it must not."""

from __future__ import annotations

import torch

GUARD = 1024
"""Bytes before and after an output: more than the widest vector of the widest type."""

_MARK = 0xA5


class Guarded:
    """Poisoned memory of a fresh tensor's kind, `tensor`, between guards."""

    def __init__(self, like: torch.Tensor) -> None:
        size = like.untyped_storage().nbytes()
        self._whole = torch.full((size + 2 * GUARD,), _MARK, dtype=torch.uint8)
        place = GUARD // like.element_size()
        self.tensor = torch.empty(0, dtype=like.dtype).set_(
            self._whole.untyped_storage(), place, like.shape, like.stride()
        )
        _fill(self.tensor)

    @property
    def intact(self) -> bool:
        """Whether nothing was written before or after the tensor."""
        return bool((self._whole[:GUARD] == _MARK).all() and (self._whole[-GUARD:] == _MARK).all())


def _fill(t: torch.Tensor) -> None:
    """NaN, True or a number that is rarely right."""
    t.fill_(float("nan") if t.dtype.is_floating_point else True if t.dtype == torch.bool else 77)
