"""Affine index maps: dependence between operators is arithmetic on these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Affine:
    """`const + Σ coef·var`, over variables numbered from 0; `terms` is sorted and has no zero coefficient."""

    const: int = 0
    terms: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(terms: dict[int, int], const: int = 0) -> Affine:
        return Affine(const, tuple(sorted((v, c) for v, c in terms.items() if c)))

    @staticmethod
    def var(v: int, coef: int = 1, const: int = 0) -> Affine:
        return Affine.of({v: coef}, const)

    def coef(self, v: int) -> int:
        return next((c for w, c in self.terms if w == v), 0)

    @property
    def vars(self) -> frozenset[int]:
        return frozenset(v for v, _ in self.terms)

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.const + other, self.terms)
        total = dict(self.terms)
        for v, c in other.terms:
            total[v] = total.get(v, 0) + c
        return Affine.of(total, self.const + other.const)

    def __mul__(self, k: int) -> Affine:
        return Affine.of({v: c * k for v, c in self.terms}, self.const * k)

    def __str__(self) -> str:
        parts = [(f"{c}*" if c != 1 else "") + f"i{v}" for v, c in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


Index = tuple[Affine, ...]
"""One expression per axis of a tensor."""


def identity(rank: int) -> Index:
    """The position that is its own point."""
    return tuple(Affine.var(i) for i in range(rank))


def linear(index: Index, strides: Sequence[int], offset: int = 0) -> Affine:
    """The element offset of `index` in a tensor with these strides."""
    out = Affine(offset)
    for e, s in zip(index, strides, strict=True):
        out = out + e * s
    return out


def show(index: Index) -> str:
    """`[i0, 2*i1 + 3]`."""
    return "[" + ", ".join(map(str, index)) + "]"
