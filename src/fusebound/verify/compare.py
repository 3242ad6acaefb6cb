"""The outputs of a run compared one by one: structure first, then numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fusebound.analysis.tau import Tau
from fusebound.verify.bits import same_value
from fusebound.verify.errors import Errors, Exact, measure, measure_integers
from fusebound.verify.held import Held
from fusebound.verify.jumps import on_jump
from fusebound.verify.luck import distinct
from fusebound.verify.oracle import Reference
from fusebound.verify.tolerance import rule

_REACH = 2.0
"""How many times as far off as eight moved references a result may be by roundings: they are a sample."""
Pick = Callable[[Reference], Any]
"""Finds the value in question in a reference."""


@dataclass(frozen=True, slots=True)
class Output:
    """The errors of one output or mutated input."""

    name: str
    shape: tuple[int, ...]
    errors: Errors

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


class Comparer:
    """Collects outputs with their errors, faults (structure that differs) and notes.

    `shaken` computes, when asked, references whose intermediates moved by an ULP: they show what lies on a
    jump. `held` has the τ that an output's distance is measured by.
    """

    def __init__(self, shaken: Callable[[], Sequence[Reference]], held: Held) -> None:
        self._shaken = shaken
        self._held = held
        self.outputs: list[Output] = []
        self.faults: list[str] = []
        self.notes: list[str] = []

    def add(self, name: str, fused: Any, eager: Any, exact: Any, pick: Pick) -> None:
        """Compare one output; what is no tensor has to be equal, a tensor's type and layout have to agree."""
        if not isinstance(eager, torch.Tensor):
            if type(fused) is not type(eager) or not same_value(fused, eager):
                self.faults.append(f"{name} is {fused!r} where eager has {eager!r}")
            return
        differs = _layout(fused, eager)
        if differs and self._size_on_a_jump(fused, eager, pick):
            self.notes.append(f"{name} {differs}, but the size lies on a tie: not compared")
        elif differs:
            self.faults.append(f"{name} {differs}")
        else:
            errors = self._errors(*_dense(fused, eager, exact), pick, self._held.of(name))
            self.outputs.append(Output(name, tuple(eager.shape), errors))

    def _errors(
        self, fused: torch.Tensor, eager: torch.Tensor, exact: Any, pick: Pick, tau: Tau | None
    ) -> Errors:
        wanted = _reference_of(eager, exact)
        errors = _measured(fused, eager, wanted, tau)
        if rule(errors, tau=tau).ok or eager.is_complex():
            return errors
        if not eager.is_floating_point():
            return measure_integers(fused, eager, wanted.value, [pick(r) for r in self._shaken()])
        if tau is not None and not errors.forbidden:
            return errors
        shaken = [pick(r) for r in self._shaken()]
        fused = torch.where(_gains(fused, eager, wanted.value, shaken), wanted.value.to(fused.dtype), fused)
        if tau is not None:
            return _measured(fused, eager, wanted, tau)
        places = on_jump(fused, wanted.value, shaken)
        fused = torch.where(places, eager, fused)
        errors = replace(_measured(fused, eager, wanted, tau), equal=False, jumps=int(places.sum()))
        moved = [measure(s.to(eager.dtype), eager, wanted) for s in shaken if s.shape == eager.shape]
        return errors if rule(errors).ok else replace(errors, explained=_within(errors, moved))

    def _size_on_a_jump(self, fused: Any, eager: torch.Tensor, pick: Pick) -> bool:
        """Whether the sizes differ in a program whose own size changes when intermediates move by an ULP."""
        if not isinstance(fused, torch.Tensor) or fused.dim() != eager.dim() or fused.dtype != eager.dtype:
            return False
        return fused.shape != eager.shape and any(pick(r).shape != eager.shape for r in self._shaken())


def _measured(fused: torch.Tensor, eager: torch.Tensor, wanted: Exact, tau: Tau | None) -> Errors:
    errors = measure(fused, eager, wanted, tau)
    return errors if errors.equal else replace(errors, distinct=distinct(fused, eager, wanted))


def _gains(
    fused: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, shaken: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Where fused is finite and eager is not, and no further off than references whose intermediates moved."""
    moves = [(s - exact).abs() for s in shaken if s.shape == exact.shape]
    reach = _REACH * torch.stack(moves).amax(0) if moves else torch.zeros_like(exact)
    near = (fused.to(torch.float64) - exact).abs() <= reach.nan_to_num(posinf=0.0)
    return near & fused.isfinite() & ~eager.isfinite() & exact.isfinite()


def _within(errors: Errors, moved: Sequence[Errors]) -> bool:
    """Whether fused is no further off than references whose intermediates moved, in every part and at the worst."""
    return all(
        any(part.fused.norm <= _REACH * m.parts[i].fused.norm for m in moved)
        and any(part.fused.largest <= _REACH * m.parts[i].fused.largest for m in moved)
        for i, part in enumerate(errors.parts)
    )


def _dense(fused: torch.Tensor, eager: torch.Tensor, exact: Any) -> tuple[torch.Tensor, torch.Tensor, Any]:
    if eager.layout == torch.strided:
        return fused, eager, exact
    return fused.to_dense(), eager.to_dense(), exact.to_dense() if isinstance(exact, torch.Tensor) else exact


def is_double(value: Any) -> bool:
    """Whether only a type wider than float64 can judge a value."""
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float64, torch.complex128)


def _reference_of(eager: torch.Tensor, exact: Any) -> Exact:
    """What the oracle says of one output; eager's own values where it says nothing wider or of another
    shape.

    An output of float64 that was computed in narrower types has float64 for a wider reference.
    """
    value, residue = exact if isinstance(exact, tuple) else (exact, None)
    usable = isinstance(value, torch.Tensor) and value.shape == eager.shape
    if not usable or (residue is None and is_double(eager) and _last_bits(value, eager)):
        return Exact(eager, coarse=True)
    return Exact(value, residue)


def _last_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two results differ by no more than arithmetic in float64 can explain: 2^-35 of the largest."""
    both = a.isfinite() & b.isfinite()
    if not bool(both.any()):
        return True
    a, b = a[both], b[both]
    return bool((a - b).abs().max() <= 2.0**-35 * b.abs().max())


def _layout(fused: Any, eager: torch.Tensor) -> str:
    if not isinstance(fused, torch.Tensor):
        return f"is a {type(fused).__name__} where eager has a tensor"
    for what in ("dtype", "shape", "layout", "device"):
        mine, theirs = getattr(fused, what), getattr(eager, what)
        if mine != theirs:
            return f"has {what} {mine} where eager has {theirs}"
    if eager.layout == torch.strided and _strides(fused) != _strides(eager):
        return f"has strides {fused.stride()} where eager has {eager.stride()}"
    return ""


def _strides(t: torch.Tensor) -> tuple[int, ...]:
    """Strides of the axes that are walked."""
    return tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1) if t.numel() else ()
