"""Variance and standard deviation: two passes, all in float64 as in eager, rounded once at the end.

A square or a sum of squares may overflow float32 where the result, or its root, does not; and float64 rounds the mean
so finely that no correction for it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch

from fusebound.capture.lower.context import Ctx, Number, T, Unlowered, axes, lowering

Dims = Sequence[int] | int | None


def again_centred(c: Ctx, centred: T, dims: Sequence[int]) -> tuple[T, T]:
    """Float64 values less their mean, and the squares of that, without what the mean's rounding left: no wider type
    holds their sum. So equal values become 0, as in eager's running mean.

    Σ(x - m)² = Σ(x - m)(x + m), in which the roundings of the two factors are not the same.
    """
    mean = c.mean(centred, dims, keep=True)
    again = centred - mean
    return again, again * (centred + mean)


def running(c: Ctx, mean: T) -> T:
    """A mean as eager has it where it is updated by each value's distance from it: an infinity becomes NaN, since the
    next value is infinitely far. (Only where none follows it stays: a matter of the place, here NaN. The verifier's
    reference has the same.)"""
    return mean - (mean - mean)


def spread(c: Ctx, x: T, dim: Dims, correction: Number, keep: bool, root: bool) -> tuple[T, T]:
    """Variance (or its root) and mean; `correction` is subtracted from the count, at least to 0. A single value is its
    mean."""
    if not x.dtype.is_floating_point:
        raise Unlowered("the variance of a type that is not real", "F604")
    dims = axes(dim, x.rank)
    kept = tuple(1 if i in dims else n for i, n in enumerate(x.shape))
    shape = kept if keep else tuple(n for i, n in enumerate(x.shape) if i not in dims)
    over = dims if x.rank else (0,)
    count = prod(x.shape[d] for d in dims) if x.rank else 1
    w = c.cast(c.reshape(x, x.shape or (1,)), torch.float64)
    mean = c.mean(w, over, keep=True)
    centred = w - mean
    squares = again_centred(c, centred, over)[1] if x.dtype == torch.float64 else centred * centred
    var = c.reduce("sum", squares, over, keep=True) / max(float(count - correction), 0.0)
    out = c("sqrt", var) if root else var
    mean = running(c, mean) if count > 1 else mean
    return c.cast(c.reshape(out, shape), x.dtype), c.cast(c.reshape(mean, shape), x.dtype)


def _correction(correction: Number | None) -> Number:
    return 1 if correction is None else correction


def _one(root: bool) -> Callable[..., T]:
    def lower(c: Ctx, x: T, dim: Dims = None, correction: Number | None = None, keepdim: bool = False) -> T:
        return spread(c, x, dim, _correction(correction), keepdim, root)[0]

    return lower


def _both(root: bool) -> Callable[..., tuple[T, T]]:
    def lower(
        c: Ctx, x: T, dim: Dims = None, correction: Number | None = None, keepdim: bool = False
    ) -> tuple[T, T]:
        return spread(c, x, dim, _correction(correction), keepdim, root)

    return lower


def _unbiased(root: bool) -> Callable[..., T]:
    def lower(c: Ctx, x: T, dim: Dims = None, unbiased: bool = True, keepdim: bool = False) -> T:
        return spread(c, x, dim, int(unbiased), keepdim, root)[0]

    return lower


def _unbiased_all(root: bool) -> Callable[..., T]:
    def lower(c: Ctx, x: T, unbiased: bool = True) -> T:
        return spread(c, x, None, int(unbiased), False, root)[0]

    return lower


for _name, _root in (("var", False), ("std", True)):
    lowering(f"aten.{_name}.correction")(_one(_root))
    lowering(f"aten.{_name}_mean.correction")(_both(_root))
    lowering(f"aten.{_name}.dim")(_unbiased(_root))
    lowering(f"aten.{_name}.default")(_unbiased_all(_root))
