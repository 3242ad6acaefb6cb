"""Variance and standard deviation: two passes, in float32 for half precision, corrected for the mean's rounding
(Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983, eq. 1.7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from fusebound.capture.lower.context import Ctx, Number, T, Unlowered, axes, lowering
from fusebound.capture.lower.norm import moments

Dims = Sequence[int] | int | None


def spread(c: Ctx, x: T, dim: Dims, correction: Number, keep: bool, root: bool) -> tuple[T, T]:
    """Variance (or its root) and mean; `correction` is subtracted from the count, at least to 0."""
    if not x.dtype.is_floating_point:
        raise Unlowered("the variance of a type that is not real", "F604")
    dims = axes(dim, x.rank)
    kept = tuple(1 if i in dims else n for i, n in enumerate(x.shape))
    shape = kept if keep else tuple(n for i, n in enumerate(x.shape) if i not in dims)
    w = c.reshape(c.wide(x), x.shape or (1,))
    centred, mean, _ = moments(c, w, dims if x.rank else (0,))
    count = prod(x.shape[d] for d in dims) if x.rank else 1
    squares, rest = (
        c.reduce("sum", t, dims if x.rank else (0,), keep=True) for t in (centred * centred, centred)
    )
    # At a large mean its rounding would weigh as much as the data's own spread.
    var = c.clamp(squares - rest * rest / float(count), 0.0, None) / max(float(count - correction), 0.0)
    out = c("sqrt", var) if root else var
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
