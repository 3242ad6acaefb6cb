"""Whether a result that is worse than eager's on one draw is no worse on many: few numbers say little."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tests.property.programs import Program as Source

from fusebound.capture.torch import Captured
from fusebound.runtime.executable import Executable
from fusebound.verify.call import bind
from fusebound.verify.held import mutated
from fusebound.verify.program import Outcome, Program, own_copies
from fusebound.verify.tolerance import rule

SETTLED = 256
"""Different numbers in a result from which on one draw says how exact it is."""
DRAWS, ENOUGH = 64, 1024
"""Draws that are taken together where there are fewer, and more of them until there are so many different numbers."""


def is_luck(source: Source, captured: Captured, exe: Executable, values: int) -> bool:
    """Whether results of few different numbers are no worse than eager's once more draws are added to them. (Over three
    values that are nearly equal, `layer_norm` makes an error of any size of a rounding; an expanded input holds one
    number.)"""
    args, kwargs = own_copies(captured, source.arguments(values), {})
    run = Program(exe, source.function, captured, args, kwargs, bind(captured, args, kwargs))
    theirs = run.eager(0)
    found = run.judge(theirs, run.fused(0), 0)
    numbers = _different(run, theirs)
    worse = [numbers[o.name] for o in found.outputs if not rule(o.errors).ok]
    if not worse or min(worse) >= SETTLED:
        return False
    pooled = {o.name: o.errors for o in found.outputs}
    for k in range(1, max(DRAWS, ENOUGH // max(min(worse), 1))):
        _overwrite(args, source.arguments(values + k))
        run.settle()
        found = run.judge(run.eager(k), run.fused(k), k)
        if found.faults:
            return False
        for o in found.outputs:
            pooled[o.name] = pooled[o.name].merged(o.errors) if o.name in pooled else o.errors
    return all(rule(errors).ok for errors in pooled.values())


def _different(run: Program, left: Outcome) -> dict[str, int]:
    """How many different numbers each result has, by the verifier's names."""
    changed = {mutated(run.leaves[i]): v for i, v in left.changed.items()}
    outputs = {f"output {i}": v for i, v in enumerate(left.outputs)}
    return {name: len(v.unique()) for name, v in (outputs | changed).items()}


def _overwrite(tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> None:
    """Give tensors the memory of others that are laid out alike; what they share, and a guard behind it, stays."""
    for t, other in zip(tensors, others, strict=True):
        new = _bytes(other)
        _bytes(t)[: len(new)] = new


def _bytes(t: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage())
