"""Sums, extremes, truth: reductions that are one primitive plus casts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fusebound.capture.lower.context import Ctx, Number, T, Unlowered, axes, axis, lowering
from fusebound.capture.lower.pointwise import truth

Dims = Sequence[int] | int | None


def accumulate(c: Ctx, op: str, x: T, dims: Dims, keep: bool, dtype: torch.dtype | None) -> T:
    """A sum or product: integers in int64, half precision in float32 with one rounding at the end."""
    if dtype is not None:
        x = c.cast(x, dtype, user=dtype != x.dtype) if dtype != x.dtype else x
    elif not x.dtype.is_floating_point:
        x = c.cast(x, torch.int64)
    total = c.reduce(op, c.wide(x), axes(dims, x.rank), keep=keep)
    return c.cast(total, x.dtype)


@lowering("aten.sum.default")
def sum_all(c: Ctx, x: T, dtype: torch.dtype | None = None) -> T:
    return accumulate(c, "sum", x, None, False, dtype)


@lowering("aten.sum.dim_IntList")
def sum_dim(c: Ctx, x: T, dim: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> T:
    return accumulate(c, "sum", x, dim, keepdim, dtype)


@lowering("aten.prod.default")
def prod_all(c: Ctx, x: T, dtype: torch.dtype | None = None) -> T:
    return accumulate(c, "prod", x, None, False, dtype)


@lowering("aten.prod.dim_int")
def prod_dim(c: Ctx, x: T, dim: int, keepdim: bool = False, dtype: torch.dtype | None = None) -> T:
    return accumulate(c, "prod", x, dim, keepdim, dtype)


@lowering("aten.nansum.default")
def nansum(c: Ctx, x: T, dim: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> T:
    if x.dtype.is_floating_point:
        x = c.where(c("isnan", x), 0, x)
    return accumulate(c, "sum", x, dim, keepdim, dtype)


@lowering("aten.mean.default")
def mean_all(c: Ctx, x: T, dtype: torch.dtype | None = None) -> T:
    return mean_dim(c, x, None, False, dtype)


@lowering("aten.mean.dim")
def mean_dim(c: Ctx, x: T, dim: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> T:
    if dtype is not None and dtype != x.dtype:
        x = c.cast(x, dtype, user=True)
    return c.cast(c.mean(c.wide(x), axes(dim, x.rank), keep=keepdim), x.dtype)


def _extreme(op: str) -> Callable[..., T]:
    def lower(c: Ctx, x: T, dim: Dims = None, keepdim: bool = False) -> T:
        return _logical_extreme(c, op, x, axes(dim, x.rank), keepdim)

    return lower


def _logical_extreme(c: Ctx, op: str, x: T, dims: Sequence[int], keep: bool) -> T:
    if x.dtype == torch.bool:
        return c.reduce("any" if op == "amax" else "all", x, dims, keep=keep)
    return c.reduce(op, x, dims, keep=keep)


for _op, _name in (("amax", "max"), ("amin", "min")):
    lowering(f"aten.{_op}.default", f"aten.{_name}.default")(_extreme(_op))


@lowering("aten.aminmax.default")
def aminmax(c: Ctx, x: T, dim: int | None = None, keepdim: bool = False) -> tuple[T, T]:
    dims = axes(dim, x.rank) if dim is not None else axes(None, x.rank)
    return tuple(_logical_extreme(c, op, x, dims, keepdim) for op in ("amin", "amax"))  # type: ignore[return-value]


def _index(c: Ctx, op: str, x: T, dims: Sequence[int], keep: bool) -> T:
    if x.dtype == torch.bool:
        raise Unlowered("the place of an extreme among booleans")
    return c.reduce(op, x, dims, keep=keep)


def _with_index(op: str) -> Callable[..., tuple[T, T]]:
    def lower(c: Ctx, x: T, dim: int, keepdim: bool = False) -> tuple[T, T]:
        dims = (axis(dim, x.rank),)
        return _logical_extreme(c, f"a{op}", x, dims, keepdim), _index(c, f"arg{op}", x, dims, keepdim)

    return lower


def _position(op: str) -> Callable[..., T]:
    def lower(c: Ctx, x: T, dim: int | None = None, keepdim: bool = False) -> T:
        if dim is not None:
            return _index(c, op, x, (axis(dim, x.rank),), keepdim)
        found = _index(c, op, c.reshape(x, (x.numel,)), (0,), False)
        return c.reshape(found, (1,) * x.rank) if keepdim else found

    return lower


for _op in ("max", "min"):
    lowering(f"aten.{_op}.dim")(_with_index(_op))
    lowering(f"aten.arg{_op}.default")(_position(f"arg{_op}"))


def _quantifier(op: str) -> Callable[..., T]:
    def lower(c: Ctx, x: T, dim: Dims = None, keepdim: bool = False) -> T:
        found = c.reduce(op, truth(c, x), axes(dim, x.rank), keep=keepdim)
        return c.cast(found, c.out_dtype)

    return lower


for _op in ("any", "all"):
    lowering(f"aten.{_op}.default", f"aten.{_op}.dim", f"aten.{_op}.dims")(_quantifier(_op))


@lowering("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(c: Ctx, x: T, dim: Dims = None) -> T:
    return c.reduce("sum", c.cast(truth(c, x), torch.int64), axes(dim, x.rank))


def vector_norm(c: Ctx, w: T, order: Number, dims: Sequence[int], keep: bool) -> T:
    """The p-norm of a real operand, in its own type; of a single element, as in eager, its size without powers."""
    size = c("abs", w)
    if order != 0 and (w.rank == 0 or all(w.shape[d] == 1 for d in dims)):
        order = 1
    match order:
        case 2:
            return c("sqrt", c.reduce("sum", w * w, dims, keep=keep))
        case 1:
            return c.reduce("sum", size, dims, keep=keep)
        case 0:
            return c.reduce("sum", c.cast(c("ne", w, 0), w.dtype), dims, keep=keep)
        case _ if order in (float("inf"), float("-inf")):
            return c.reduce("amax" if order > 0 else "amin", size, dims, keep=keep)
        case _:
            return c("pow", c.reduce("sum", c("pow", size, order), dims, keep=keep), 1.0 / order)


@lowering("aten.linalg_vector_norm.default")
def linalg_vector_norm(
    c: Ctx, x: T, ord: Number = 2, dim: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> T:
    if dtype is not None and dtype != x.dtype:
        x = c.cast(x, dtype, user=True)
    if not x.dtype.is_floating_point:
        raise Unlowered("the norm of a type that is not real", "F604")
    return c.cast(vector_norm(c, c.wide(x), ord, axes(dim, x.rank), keepdim), x.dtype)


@lowering("aten.norm.Scalar")
def norm_all(c: Ctx, x: T, p: Number = 2, dtype: torch.dtype | None = None) -> T:
    """`dtype` is an argument of `_foreach_norm` only."""
    return linalg_vector_norm(c, x, p, dtype=dtype)


@lowering("aten.norm.ScalarOpt_dim")
def norm_dim(c: Ctx, x: T, p: Number | None, dim: Dims, keepdim: bool = False) -> T:
    return linalg_vector_norm(c, x, 2 if p is None else p, dim, keepdim)


@lowering("aten.norm.ScalarOpt_dim_dtype")
def norm_dtype(
    c: Ctx, x: T, p: Number | None, dim: Dims, keepdim: bool = False, dtype: torch.dtype | None = None
) -> T:
    return linalg_vector_norm(c, x, 2 if p is None else p, dim, keepdim, dtype)


@lowering(
    "aten.adaptive_avg_pool1d.default",
    "aten.adaptive_avg_pool2d.default",
    "aten.adaptive_avg_pool3d.default",
    "aten._adaptive_avg_pool2d.default",
    "aten._adaptive_avg_pool3d.default",
)
def adaptive_avg_pool(c: Ctx, x: T, size: Sequence[int]) -> T:
    """Pooling to one place is a mean over the spatial axes; other sizes have windows that differ."""
    if any(n != 1 for n in size):
        raise Unlowered("pooling to more than one place")
    return mean_dim(c, x, list(range(x.rank - len(size), x.rank)), True)
