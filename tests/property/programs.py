"""Programs of tensors as source text, and their arguments.

An exact program computes small integers, in any type: sums, products and differences have one value in whatever order
they are computed, so that what is compiled has to give eager's bits. A real program is judged against float64.
"""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from tests.property.graphs import contents, strided

MOST = 4000
"""Elements of a value at most."""
LIMIT = {torch.bfloat16: 2.0**7, torch.float16: 2.0**10, torch.float32: 2.0**12, torch.float64: 2.0**40}
"""Up to this, integers are exact in a type, and sums of `MOST` of them in the type that sums are computed in."""

Names = dict[str, Any]


class Unfit(Exception):
    """The line does not apply to the values so far."""


UNFIT = (Unfit, RuntimeError, IndexError, ValueError, TypeError, AttributeError, ZeroDivisionError)
"""What a line raises that does not apply."""


@dataclass(frozen=True)
class Given:
    """An input: small integers, real numbers, or with `below` indices. `view` makes it from an earlier one instead."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: int
    real: bool = False
    below: int = 0
    view: str = ""

    def tensor(self, values: int, names: Names) -> torch.Tensor:
        """Drawn from the seed `values`. An odd one in twenty has an index that is out of range."""
        if self.view:
            return eval(self.view, {"torch": torch, **names})
        seed = values * 1009 + self.layout % 1000
        t = contents(self.shape, self.dtype, seed, self.below, False)
        if self.below and values % 20 == 7 and t.numel():
            t.view(-1)[-1] = self.below
        if self.real and t.is_floating_point():
            noise = torch.randn(
                self.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
            )
            t = noise.to(t.dtype)
        return strided(Random(self.layout), t)


@dataclass(frozen=True)
class Program:
    """A function as text, and how its inputs are made."""

    seed: int
    exact: bool
    inputs: tuple[Given, ...]
    lines: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def source(self) -> str:
        names = ", ".join(i.name for i in self.inputs)
        return (
            "\n    ".join((f"def program({names}):", *self.lines, f"return {', '.join(self.outputs)}")) + "\n"
        )

    @cached_property
    def function(self) -> Callable[..., Any]:
        file = f"<program {self.seed}>"
        linecache.cache[file] = (len(self.source), None, self.source.splitlines(True), file)
        scope: Names = {"torch": torch, "F": F}
        exec(compile(self.source, file, "exec"), scope)
        return scope["program"]

    def arguments(self, values: int) -> tuple[torch.Tensor, ...]:
        """Inputs with the numbers of a seed; the same strides, offsets and shared memory for every seed."""
        names: Names = {}
        for i in self.inputs:
            names[i.name] = i.tensor(values, names)
        return tuple(names.values())

    def is_exact(self, values: int) -> bool:
        """Whether all that the program computes on these arguments is an integer far below its type's limits."""
        if not self.exact:
            return False
        names = dict(zip((i.name for i in self.inputs), self.arguments(values), strict=True))
        for line in self.lines:
            try:
                run(line, names)
            except UNFIT:
                return True
            if not integral(names):
                return False
        return True

    def __str__(self) -> str:
        made = [
            f"# {i.name} = {i.view or i.dtype}{list(t.shape)} strides {t.stride()} from {t.storage_offset()}"
            for i, t in zip(self.inputs, self.arguments(0), strict=True)
        ]
        return "\n".join((f"# seed {self.seed}, {'exact' if self.exact else 'real'}", *made, self.source))


def smaller(p: Program, fails: Callable[[Program], bool]) -> Program:
    """Without the lines and outputs that a failure does not need."""
    changed = True
    while changed:
        changed = False
        for what in ("lines", "outputs"):
            for i in reversed(range(len(getattr(p, what)))):
                kept = getattr(p, what)[:i] + getattr(p, what)[i + 1 :]
                less = replace(p, **{what: kept})
                if less.outputs and less.lines and fails(less):
                    p, changed = less, True
    return p


def run(line: str, names: Names) -> None:
    """Run one line on the values that the names hold; what the framework advises against is wanted here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(line, {"torch": torch, "F": F}, names)


def integral(names: Names) -> bool:
    """Whether all floating values are integers far below their type's limit."""
    return all(
        bool(((v == v.round()) & (v.abs() <= LIMIT[v.dtype])).all())
        for v in names.values()
        if isinstance(v, torch.Tensor) and v.is_floating_point()
    )
