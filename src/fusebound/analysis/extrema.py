"""Maxima and minima of numpy arrays as IEEE 754-2019 has them: NaN if any operand is, and -0 below +0, which numpy
leaves to chance. So they do not depend on the order of the operands."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Axes = int | tuple[int, ...] | None


def maximum(a: Array, b: Array) -> Array:
    """The greater, element by element; the sum of two zeros is -0 only where both are."""
    return np.where((a == 0) & (b == 0), np.add(a, b), np.maximum(a, b))


def minimum(a: Array, b: Array) -> Array:
    """The lesser, element by element."""
    if np.result_type(a, b).kind != "f":
        return np.minimum(a, b)
    return np.where((a == 0) & (b == 0), np.negative(np.subtract(np.negative(a), b)), np.minimum(a, b))


def clamp_min(x: Array, lo: Array) -> Array:
    """`lo` where it is above x, else x: a NaN and the sign of a zero stay."""
    return np.where(np.less(x, lo), lo, x)


def clamp_max(x: Array, hi: Array) -> Array:
    """`hi` where it is below x, else x."""
    return np.where(np.greater(x, hi), hi, x)


def amax(x: Array, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """The greatest over axes (all by default)."""
    top = np.maximum.reduce(x, axis=axis, keepdims=keepdims)
    if top.dtype.kind != "f":
        return top
    positive = ((x == 0) & ~np.signbit(x)).any(axis=axis, keepdims=keepdims)
    return np.where((top == 0) & ~positive, -np.abs(top), np.where(top == 0, np.abs(top), top))


def amin(x: Array, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """The least over axes (all by default)."""
    if x.dtype.kind != "f":
        return np.minimum.reduce(x, axis=axis, keepdims=keepdims)
    return -amax(-x, axis, keepdims=keepdims)
