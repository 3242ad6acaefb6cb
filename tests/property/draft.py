"""Random programs of tensors: lines of `steps`, drawn from a seed and tried as they are added."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from random import Random
from typing import Any

import torch
from tests.property import steps
from tests.property.graphs import FLOATS, INTEGERS
from tests.property.programs import MOST, UNFIT, Given, Names, Program, Unfit, integral, run

SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 64)
"""None, one, primes, the vectors' widths and their neighbours."""
SLICES = (":", "1:", ":-1", "::2", "1::3", "0", "-1", "...", ":1", "2:5")


def draw(seed: int) -> Program:
    """A program of three to ten lines."""
    r = Random(seed)
    d = _Draft(r, exact=r.random() < 0.5)
    shape = [r.choice(SIZES) for _ in range(r.choice((0, 1, 2, 2, 2, 3, 3, 4)))]
    while prod(shape) > MOST // 4:
        shape[shape.index(max(shape))] = r.choice((1, 2, 3, 5))
    d.add_inputs(tuple(shape))
    for _ in range(r.randrange(3, 11)):
        d.add_line()
    return Program(seed, d.exact, tuple(d.inputs), tuple(d.lines), d.outputs())


class _Draft:
    """A program in the making, and the values that its names hold so far."""

    def __init__(self, random: Random, exact: bool) -> None:
        self.random, self.exact = random, exact
        self.inputs: list[Given] = []
        self.lines: list[str] = []
        self.names: Names = {}

    def add_inputs(self, shape: tuple[int, ...]) -> None:
        """One of the shape, and some that broadcast with it or are views of another."""
        r = self.random
        kinds = (
            (*FLOATS, "float32", "float32", "float32")
            if not self.exact
            else (*FLOATS, "float32", *INTEGERS, "bool")
        )
        kind = r.choice(kinds)
        self.input(shape, kind)
        for _ in range(r.randrange(3)):
            if r.random() < 0.2:
                base = r.choice(list(self.names))
                view = r.choice(
                    ("{}", "{}[1:]", "{}.mT", "{}[..., 1:]", "{}.detach()", "{}[..., ::2]", "{}[:1]")
                )
                try:
                    self.give(Given(f"x{len(self.inputs)}", (), "", 0, view=view.format(base)))
                except (IndexError, RuntimeError):
                    continue
            else:
                keep = tuple(n if r.random() < 0.8 else 1 for n in shape)
                self.input(keep[r.choice((0, 0, 1)) :], kind if r.random() < 0.7 else r.choice(kinds))

    def input(self, shape: tuple[int, ...], dtype: str, below: int = 0) -> str:
        name = f"x{len(self.inputs)}"
        real = not self.exact and not below
        return self.give(Given(name, shape, dtype, self.random.randrange(1 << 30), real, below))

    def give(self, given: Given) -> str:
        self.names[given.name] = given.tensor(0, self.names)
        self.inputs.append(given)
        return given.name

    def add_line(self) -> None:
        """Draw lines until one runs."""
        for _ in range(12):
            held = len(self.inputs)
            kind, line = self.drawn()
            try:
                text = line.format_map(_Holes(self))
                text = text if kind == "in place" else f"v{len(self.lines)} = {text}"
                run(text, self.names)
                if self.fits():
                    self.lines.append(text)
                    return
            except UNFIT:
                pass
            del self.inputs[held:]
            self.again()

    def drawn(self) -> tuple[str, str]:
        """A class of operators, and a line of it."""
        tables = (steps.EXACT, steps.INTEGRAL if self.exact else steps.REAL)
        kinds = [k for k in steps.WEIGHTS if any(k in t for t in tables)]
        (kind,) = self.random.choices(kinds, [steps.WEIGHTS[k] for k in kinds])
        return kind, self.random.choice([line for t in tables for line in t.get(kind, ())])

    def fits(self) -> bool:
        """Whether every value is small enough, and integral where that is asked."""
        values = [v for v in self.names.values() if isinstance(v, torch.Tensor)]
        small = all(v.numel() <= MOST and v.dim() <= 5 for v in values)
        return small and not (self.exact and not integral(self.names))

    def again(self) -> None:
        """Undo what a line that is not taken has written."""
        self.names = {}
        for i in self.inputs:
            self.names[i.name] = i.tensor(0, self.names)
        for line in self.lines:
            run(line, self.names)

    def outputs(self) -> tuple[str, ...]:
        """Values that nothing reads, all of them, for an operator without a reader is not run and raises nothing; and
        perhaps one that is read, or an input."""
        made = [n for n in self.names if n.startswith("v")]
        ends = [n for n in made if not any(_reads(line, n) for line in self.lines)]
        if not ends or self.random.random() < 0.3:
            ends.append(self.random.choice(list(self.names)))
        return tuple(ends)


def _reads(line: str, name: str) -> bool:
    """Whether a line does more with a value than to make it or to write to it."""
    return not re.match(rf"{name}\b", line) and re.search(rf"\b{name}\b", line) is not None


class _Holes(dict[str, Any]):
    """What is put into the holes of a line, drawn at first use; a new input where indices are wanted."""

    def __init__(self, draft: _Draft) -> None:
        super().__init__()
        self.draft, self.random = draft, draft.random

    def __missing__(self, hole: str) -> Any:
        self[hole] = getattr(self, f"_{hole}")()
        return self[hole]

    @property
    def value(self) -> torch.Tensor:
        return self.draft.names[self["a"]]

    def _axis(self) -> int:
        if not self.value.dim():
            raise Unfit
        return self.random.randrange(-self.value.dim(), self.value.dim())

    def _pick(self, fits: Callable[[torch.Tensor], bool]) -> str:
        found = [n for n, v in self.draft.names.items() if fits(v)]
        alike = [n for n in found if self.draft.names[n].dtype == self.value.dtype]
        return self.random.choice(alike if alike and self.random.random() < 0.7 else found)

    def _a(self) -> str:
        """Among real numbers mostly a floating one: integers there come from comparisons, and programs of integers have
        every type."""
        anything = self.draft.exact or self.random.random() < 0.2
        names = [n for n, v in self.draft.names.items() if anything or v.is_floating_point()]
        return self.random.choice(names[-4:] if self.random.random() < 0.6 else names)

    def _b(self) -> str:
        shape = self.value.shape
        if self.random.random() < 0.15 and shape:
            smaller = tuple(n if self.random.random() < 0.5 else 1 for n in shape)
            return self.draft.input(
                smaller[self.random.randrange(len(shape) + 1) :], str(self.value.dtype)[6:]
            )
        return self._pick(lambda v: broadcasts(v.shape, shape))

    def _c(self) -> str:
        return self._pick(lambda v: v.shape == self.value.shape)

    def _m(self) -> str:
        names = self.draft.names
        masks = [
            n for n, v in names.items() if v.dtype == torch.bool and broadcasts(v.shape, self.value.shape)
        ]
        return (
            self.random.choice(masks)
            if masks and self.random.random() < 0.6
            else f"({self['c']} > {self['k']})"
        )

    def _d(self) -> int:
        return self._axis()

    def _e(self) -> int:
        rank = self.value.dim()
        return self.random.choice([e for e in range(rank) if e != self["d"] % rank] or [self._axis()])

    def _k(self) -> int:
        return self.random.randrange(1, 4)

    def _r(self) -> float:
        return self.random.choice((0.5, 0.1, 1.7, 3.0))

    def _s(self) -> str:
        return ", ".join(
            self.random.choice(SLICES) for _ in range(self.random.randrange(1, self.value.dim() + 1))
        )

    def _p(self) -> str:
        return ", ".join(map(str, self.random.sample(range(self.value.dim()), self.value.dim()))) or "()"

    def _w(self) -> tuple[int, ...]:
        """Two axes as one, or an axis as two."""
        shape, d = list(self.value.shape), self["d"] % self.value.dim()
        if d + 1 < len(shape) and self.random.random() < 0.6:
            shape[d : d + 2] = [shape[d] * shape[d + 1]]
        else:
            n = self.random.choice([n for n in range(1, shape[d] + 1) if shape[d] % n == 0] or [1])
            shape[d : d + 1] = [n, shape[d] // n]
        return tuple(shape)

    def _t(self) -> str:
        return f"torch.{self.random.choice((*FLOATS, *INTEGERS[:2], 'bool') if self.draft.exact else FLOATS)}"

    def _index(self, shape: tuple[int, ...], below: int) -> str:
        if not below:
            raise Unfit
        return self.draft.input(shape, "int64", below)

    def _i(self) -> str:
        return self._index((self.random.choice((1, 3, 17)),), self.value.shape[self["d"]])

    def _i0(self) -> str:
        shape = self.random.choice(((3,), (1,), (17,), (2, 3)))
        return self._index(shape, self.value.shape[0])

    def _j(self) -> str:
        shape = list(self.value.shape)
        below, shape[self["d"]] = shape[self["d"]], self.random.choice((1, 3, 17))
        return self._index(tuple(shape), below)

    def _l(self) -> str:
        return self.random.choice(("[0]", "[-1, 0]", "[0, 0, 1]", "None"))


def broadcasts(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes do, to the second or to a larger one."""
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))
