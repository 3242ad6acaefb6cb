"""What a case is, and how its arguments are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

import torch

Tensors = tuple[torch.Tensor, ...]
Arguments = tuple[Any, ...]

RATE, PROBABILITY = 1e-3, 0.1
"""The first learning rate, and the share that dropout drops."""


@dataclass(frozen=True, slots=True)
class Case:
    """A function and its tensors, made from the bytes of its largest tensor (rounded up to whole rows) and a dtype.

    `written` are the positions of arguments that it changes in place. `twice` are inputs that are needed again after a
    reduction over all of them, so that no order of work reads them once unless they fit the cache. `last` says what
    follows the tensors: a Python float that is another one at every call, or a dropout probability.
    """

    fn: Callable[..., Any]
    tensors: Callable[[int, torch.dtype], Tensors]
    written: tuple[int, ...] = ()
    twice: tuple[int, ...] = ()
    last: Literal["", "rate", "probability"] = ""

    @property
    def name(self) -> str:
        return self.fn.__name__

    def arguments(self, nbytes: int, dtype: torch.dtype) -> Arguments:
        """The same at every call, except for draws made inside the function."""
        match self.last:
            case "rate":
                return (*self.tensors(nbytes, dtype), RATE)
            case "probability":
                return (*self.tensors(nbytes, dtype), PROBABILITY)
            case _:
                return self.tensors(nbytes, dtype)


def normal(dtype: torch.dtype, *shapes: tuple[int, ...]) -> Tensors:
    """Standard normal numbers from a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(s, generator=generator).to(dtype) for s in shapes)


def count(nbytes: int, dtype: torch.dtype, each: int) -> int:
    """How many groups of `each` elements make up `nbytes`, two at least."""
    return max(ceil(nbytes / (dtype.itemsize * each)), 2)


def like(number: int, columns: int = 1024) -> Callable[[int, torch.dtype], Tensors]:
    """`number` matrices of one shape."""

    def tensors(nbytes: int, dtype: torch.dtype) -> Tensors:
        return normal(dtype, *[(count(nbytes, dtype, columns), columns)] * number)

    return tensors


def with_rows(matrices: int, vectors: int, columns: int = 1024) -> Callable[[int, torch.dtype], Tensors]:
    """Matrices of one shape, and vectors as long as their rows (weights, biases)."""

    def tensors(nbytes: int, dtype: torch.dtype) -> Tensors:
        shape = (count(nbytes, dtype, columns), columns)
        return normal(dtype, *[shape] * matrices, *[(columns,)] * vectors)

    return tensors


def classes(nbytes: int, dtype: torch.dtype, columns: int) -> Tensors:
    """Logits and the class of each row."""
    (logits,) = normal(dtype, (count(nbytes, dtype, columns), columns))
    generator = torch.Generator().manual_seed(1)
    return logits, torch.randint(columns, (logits.shape[0],), generator=generator)
