"""Python floats that change from call to call (a learning rate, a temperature).

A function is compiled for the numbers that it is called with. At the second value of a float it is compiled once more,
for all of them: as a function of 0-d tensors in the places of its floats, which kernels read (`capture.wrap.Numbered`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def places(args: Sequence[Any]) -> tuple[int, ...]:
    """The positions of Python floats."""
    return tuple(i for i, a in enumerate(args) if type(a) is float)


def as_tensors(args: Sequence[Any], at: Sequence[int]) -> tuple[Any, ...]:
    """The arguments with 0-d float64 tensors in some places."""
    given = list(args)
    for i in at:
        given[i] = torch.tensor(given[i], dtype=torch.float64)
    return tuple(given)


def admits(count: int, at: Sequence[int]) -> Callable[[tuple[Any, ...]], bool]:
    """Whether a call has so many arguments, and floats in these places."""
    return lambda given: len(given) == count and all(type(given[i]) is float for i in at)
