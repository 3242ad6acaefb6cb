"""Tensors from nothing, and conversions."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fusebound.capture.lower.context import Ctx, Number, T, Unlowered, lowering


def _filled(value: Number) -> Callable[..., T]:
    def lower(c: Ctx, *spec: object, **options: object) -> T:
        return _fill(c, value)

    return lower


def _fill(c: Ctx, value: Number) -> T:
    return c.full(value, c.out.shape, c.out_dtype)  # type: ignore[arg-type]


for _name, _value in (("zeros", 0), ("ones", 1)):
    lowering(f"aten.{_name}.default", f"aten.{_name}_like.default", f"aten.new_{_name}.default")(
        _filled(_value)
    )
lowering("aten.zero.default")(_filled(0))


@lowering("aten.full.default", "aten.full_like.default", "aten.new_full.default")
def full(c: Ctx, like: object, *spec: object, **options: object) -> T:
    """The last positional argument is the number."""
    value = spec[-1]
    if not isinstance(value, bool | int | float):
        raise Unlowered("a fill value that is no number")
    return _fill(c, value)


@lowering("aten.scalar_tensor.default")
def scalar_tensor(c: Ctx, value: Number, **options: object) -> T:
    return c.full(value, (), c.out_dtype)


@lowering("aten.fill.Scalar", "aten.fill.Tensor")
def fill(c: Ctx, x: T, value: T | Number) -> T:
    if isinstance(value, T):
        return c.copy(c.expand(c.cast(value, x.dtype), x.shape))
    return c.full(value, x.shape, x.dtype)


@lowering("aten.arange.start_step")
def arange(c: Ctx, start: Number, end: Number, step: Number = 1, **options: object) -> T:
    """Integers from a truncated start by a truncated step, as eager has them."""
    (n,) = c.out.shape
    if not c.out_dtype.is_floating_point:
        return c.iota((int(n),), 0, c.out_dtype, int(start), int(step))  # type: ignore[arg-type]
    if isinstance(start, float) or isinstance(step, float):
        # Eager steps in double precision and rounds once.
        return c.cast(c.iota((int(n),), 0, torch.float64, float(start), float(step)), c.out_dtype)  # type: ignore[arg-type]
    return c.iota((int(n),), 0, c.out_dtype, start, step)  # type: ignore[arg-type]


@lowering("aten.arange.start")
def arange_start(c: Ctx, start: Number, end: Number, **options: object) -> T:
    return arange(c, start, end, 1)


@lowering("aten.arange.default")
def arange_end(c: Ctx, end: Number, **options: object) -> T:
    return arange(c, 0, end, 1)


@lowering("aten.eye.default", "aten.eye.m")
def eye(c: Ctx, *sizes: int, **options: object) -> T:
    rows, columns = (int(n) for n in c.out.shape)  # type: ignore[arg-type]
    row = c.iota((rows, columns), 0, torch.int64)
    column = c.iota((rows, columns), 1, torch.int64)
    return c.cast(c("eq", row, column), c.out_dtype)


def _convert(c: Ctx, x: T) -> T:
    """A conversion that the user wrote; to the same type it is a copy."""
    return c.copy(x) if c.out_dtype == x.dtype else c.cast(x, c.out_dtype, user=True)


@lowering(
    "aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.type_as.default", "aten.to.other"
)
def to(c: Ctx, x: T, *spec: object, **options: object) -> T:
    return _convert(c, x)


@lowering("prims.convert_element_type.default")
def convert(c: Ctx, x: T, dtype: torch.dtype) -> T:
    return _convert(c, x)
