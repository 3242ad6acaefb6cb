"""Wrong kernels on purpose: faults put into the code generator for the length of a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fusebound.codegen import llvm, lower, tile


def wrong_operator(patch: pytest.MonkeyPatch, op: str) -> None:
    """A primitive returns its first operand instead of its result."""
    right = llvm._Tiles._apply

    def apply(self: Any, s: tile.Apply, env: Any, width: int) -> Any:
        return self._wide(env.regs[s.args[0]], width) if s.op == op else right(self, s, env, width)

    patch.setattr(llvm._Tiles, "_apply", apply)


def forgotten_tail(patch: pytest.MonkeyPatch) -> None:
    """Sums leave out what does not fill a vector."""
    right = lower._Lowering._loop

    def loop(self: Any, *args: Any) -> tile.Loop:
        made = right(self, *args)
        sums = any(isinstance(s, tile.Accumulate) for s in made.body)
        return replace(made, hi=made.hi - (made.hi - made.lo) % self.lanes) if made.vector and sums else made

    patch.setattr(lower._Lowering, "_loop", loop)


def wrong_pair(patch: pytest.MonkeyPatch, first: str, second: str) -> None:
    """A primitive is skipped where its operand comes from another one in the same kernel."""
    right = llvm._Tiles._apply
    made: set[tuple[int, int]] = set()

    def apply(self: Any, s: tile.Apply, env: Any, width: int) -> Any:
        if s.op == first:
            made.add((id(self.k), s.dst))
        if s.op == second and (id(self.k), s.args[0]) in made:
            return self._wide(env.regs[s.args[0]], width)
        return right(self, s, env, width)

    patch.setattr(llvm._Tiles, "_apply", apply)
