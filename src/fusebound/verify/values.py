"""How the values of one floating tensor are drawn: a rule for each special set, and what stands beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from fusebound.verify.call import Leaf
from fusebound.verify.rows import row_length

_MASK = 1e30
"""Given values at least this large are masks and stay where they are."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What a tensor is drawn from: the input itself, `noise` (normal numbers in float64, one for each element of its
    memory), the generator, and the numbers in the program."""

    leaf: Leaf
    noise: torch.Tensor
    generator: torch.Generator
    constants: Sequence[float]

    @property
    def info(self) -> torch.finfo:
        return torch.finfo(self.leaf.value.dtype)

    @property
    def row(self) -> int:
        return row_length(self.leaf.value)

    def number(self, n: int) -> int:
        """One integer, 0 to n - 1."""
        return int(torch.randint(n, (), generator=self.generator))

    def integers(self, low: int, high: int) -> torch.Tensor:
        """An integer for each element, `low` to `high` - 1."""
        return torch.randint(low, high, self.noise.shape, generator=self.generator)

    def one_of(self, levels: Sequence[float]) -> torch.Tensor:
        """One of these numbers for each element."""
        return torch.tensor(levels, dtype=torch.float64)[self.integers(0, len(levels))]

    def some(self, share: float) -> torch.Tensor:
        """Mask of about this share of the elements."""
        return torch.rand(self.noise.shape, generator=self.generator) < share


Rule = Callable[[Draw], torch.Tensor]
"""Gives the float64 value of each element in memory."""


def fill_floats(
    leaf: Leaf, flat: torch.Tensor, rule: Rule, generator: torch.Generator, constants: Sequence[float]
) -> None:
    """Overwrite all memory of an input, `flat`, by a rule; masks (huge, infinite or NaN) stay."""
    keep = ~(flat.abs().to(torch.float64) < _MASK)
    noise = torch.randn(flat.shape, generator=generator, dtype=torch.float64)
    values = rule(Draw(leaf, noise, generator, constants))
    flat.copy_(torch.where(keep, flat.to(torch.float64), values))


def normal(d: Draw) -> torch.Tensor:
    """Mean 0 and deviation 1, whatever the given values are."""
    return d.noise


def like(d: Draw) -> torch.Tensor:
    """Normal values of the given mean and deviation; positive where the given ones are, or by the name."""
    given = d.leaf.value.detach().to(torch.float64)
    given = given[given.abs() < _MASK]
    if not given.numel():
        return d.noise
    mean = float(given.mean())
    deviation = float(given.std()) if given.numel() > 1 else 0.0
    values = d.noise * (deviation or 0.5 * abs(mean) or 1.0) + mean
    name = d.leaf.name.rsplit(".", 1)[-1]
    variance = "var" in name or name.endswith("_sq")
    if variance or (float(given.min()) >= 0 and float(given.max()) > 0):
        return values.abs() + (0.1 if variance else 0.0)
    return values


def least_normal(d: Draw) -> torch.Tensor:
    """About the least normal number."""
    return d.noise * d.info.smallest_normal


def powers_of_two(d: Draw) -> torch.Tensor:
    """Small beside one magnitude: they leave its digits as they are."""
    return torch.exp2(d.integers(-15, -11)).copysign(d.noise)


def _special(d: Draw) -> torch.Tensor:
    """One value in twelve replaced, by kinds that alternate with the rows: none, NaN, ±Inf, zeros and
    subnormals; a NaN in every row would say nothing about the other values."""
    tiny = d.info.smallest_normal
    zeros = (0.0, -0.0, tiny * d.info.eps, -tiny / 2, -tiny * d.info.eps)
    kinds = torch.tensor([zeros, (math.nan,) * 5, (math.inf, -math.inf) * 2 + (0.0,)], dtype=torch.float64)
    which = torch.arange(len(d.noise)) // d.row % 4
    choice = d.integers(0, 12 * 5)
    special = kinds[(which - 1).clamp(min=0), choice.clamp(max=4)]
    return torch.where((which > 0) & (choice < 5), special, d.noise)


def _large_mean(d: Draw) -> torch.Tensor:
    return d.noise + 1e4


def _larger_mean(d: Draw) -> torch.Tensor:
    """A mean that float32 itself rounds by some per cent of the deviation."""
    return d.noise + (1e6 if d.info.eps < 1e-6 else 1e2)


def _wide_range(d: Draw) -> torch.Tensor:
    reach = min(30.0, math.log2(d.info.max) * 0.6)
    power = torch.rand(d.noise.shape, generator=d.generator, dtype=torch.float64) * 2 - 1
    return d.noise.sign() * torch.exp2(power * reach)


def _tiny(d: Draw) -> torch.Tensor:
    return d.noise * 1e-7


def _tiny_beside_large(d: Draw) -> torch.Tensor:
    """About one, or about an ULP of one: what a sum with the other ones rounds away, wholly or in part."""
    small = d.info.eps * torch.exp2(d.integers(-3, 3))
    return d.noise * torch.where(d.some(0.5), 1.0, small)


def _subnormal(d: Draw) -> torch.Tensor:
    """About the least normal number, and every second row a few of the least subnormal one."""
    steps = d.integers(-3, 4).to(d.noise.dtype)
    few = torch.arange(len(d.noise)) // d.row % 2 == 1
    return torch.where(few, steps * (d.info.smallest_normal * d.info.eps), least_normal(d))


def _small_products(d: Draw) -> torch.Tensor:
    """The product of two values is about the least normal number."""
    return d.noise * torch.exp2(d.integers(-3, 4).double() + math.log2(d.info.smallest_normal) // 2)


def _large_products(d: Draw) -> torch.Tensor:
    """Products of two values, or sums of them over one of the axes, come next to the largest number: in some orders
    parts of a sum overflow. A sum of n terms with random signs is √n times as large as one."""
    sizes = (1, *d.leaf.value.shape)
    return d.noise * (math.sqrt(d.info.max) / sizes[d.number(len(sizes))] ** 0.25)


def _equal_values(d: Draw) -> torch.Tensor:
    """Zero and large powers of two: equal operands, differences that vanish, sums without rounding. What is added or
    multiplied wrongly by a part in a million stands out."""
    size = 2.0 ** (12 if d.info.max > 1e5 else 4)
    return d.one_of([level * size for level in (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)])


def _one_value(d: Draw) -> torch.Tensor:
    """One number in each row, or everywhere."""
    n = len(d.noise)
    row = (n, d.row)[d.number(2)]
    return d.noise[torch.arange(n) // row * row]


def _peaks(d: Draw) -> torch.Tensor:
    """Wide rows with one value far above (in half of them far below) the others, so far that exponentials overflow,
    vanish or are subnormal: in turn the last, the first, and any two. Half of the rows lie far from zero."""

    def chance(n: int) -> torch.Tensor:
        return torch.rand(n, generator=d.generator, dtype=torch.float64)

    n, row = len(d.noise), d.row
    count = -(-n // row)
    rows = torch.arange(count) + d.number(4)
    anywhere = (chance(count) * row).to(torch.int64)
    place = torch.where(rows % 4 == 0, row - 1, torch.where(rows % 4 == 1, 0, anywhere))
    height = (torch.arange(row) == place[:, None]) * (100 + 250 * chance(count))[:, None]
    base, sign = torch.where(chance(count) < 0.5, -400.0, 0.0), torch.where(chance(count) < 0.5, -1.0, 1.0)
    levels = sign[:, None] * (base[:, None] + height)
    return 15 * d.noise + levels.reshape(-1)[:n]


def _zeros(d: Draw) -> torch.Tensor:
    """Half of the rows are zero: with either sign all over, or with both."""
    n, row = len(d.noise), d.row
    which = torch.randint(0, 6, (-(-n // row),), generator=d.generator).repeat_interleave(row)[:n]
    either = d.integers(0, 2) * 2 - 1
    signs = torch.where(which == 0, 1, torch.where(which == 1, -1, either))
    return torch.where(which < 3, torch.zeros_like(d.noise).copysign(signs), d.noise)


def _constants(d: Draw) -> torch.Tensor:
    """The program's own numbers and their reciprocals, with either sign."""
    sizes = (1.0, 0.5, *d.constants, *(1 / c for c in d.constants))
    return d.one_of([*sizes, *(-c for c in sizes), 0.0])


def _few_numbers(d: Draw) -> torch.Tensor:
    """A dozen numbers that meet, cancel, vanish and overflow, and a few that are not finite."""
    least = d.info.smallest_normal
    zeros = (0.0, -0.0, least / 4, -least / 4)
    drawn = d.one_of((*zeros, least, 1.0, -1.0, 1.0 + 2 * d.info.eps, 0.05, 300.0, -d.info.max / 256))
    special = d.one_of((math.inf, -math.inf, math.nan))
    return torch.where(d.some(0.01), special, drawn)


def _bit_patterns(d: Draw) -> torch.Tensor:
    """Every pattern of bits alike: numbers of every magnitude, infinities and NaN."""
    dtype = d.leaf.value.dtype
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    span = torch.iinfo(integers)
    drawn = torch.randint(span.min, span.max, d.noise.shape, generator=d.generator, dtype=integers)
    return drawn.view(dtype).to(torch.float64)


def _one_magnitude(d: Draw) -> torch.Tensor:
    """One number, 1.5 to 1.75, with either sign among zeros: exact in eager where nothing is rounded.

    An ULP of a constant is two of the product, and the zeros bring the rms, by which errors are judged, just below the
    power of two under it."""
    level = 1.5 + 0.25 * torch.rand((), generator=d.generator).double()
    some = d.some((0.3, 0.6)[d.number(2)])
    return torch.where(some, level.copysign(d.noise), 0.0)


SPECIAL: dict[str, Rule] = {
    "special values": _special,
    "nan at edges": like,
    "inf at edges": like,
    "large mean": _large_mean,
    "larger mean": _larger_mean,
    "-inf rows": normal,
    "wide range": _wide_range,
    "tiny": _tiny,
    "tiny beside large": _tiny_beside_large,
    "subnormal": _subnormal,
    "small products": _small_products,
    "large products": _large_products,
    "equal values": _equal_values,
    "one value": _one_value,
    "peaks": _peaks,
    "zeros": _zeros,
    "constants": _constants,
    "few numbers": _few_numbers,
    "bit patterns": _bit_patterns,
    "one magnitude": _one_magnitude,
}
"""The rule of each special set, in the order in which they are run; what is put at edges and into rows comes after."""
