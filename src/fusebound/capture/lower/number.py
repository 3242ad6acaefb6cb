"""Python numbers that are read from tensors at run time, and Python's arithmetic on them: float64 without axes."""

from __future__ import annotations

import torch

from fusebound.capture.lower.context import Ctx, Lowering, Number, T, Unlowered, lowering


@lowering("aten.item.default", "aten._local_scalar_dense.default")
def item(c: Ctx, x: T) -> T:
    """Floats alone: tracing takes integers for sizes."""
    if not x.dtype.is_floating_point:
        raise Unlowered("a number that is known only at run time", "F602")
    x = c.reshape(x, ())
    return c.copy(x) if x.dtype == torch.float64 else c.cast(x, torch.float64)


def _arithmetic(op: str) -> Lowering:
    def lower(c: Ctx, a: T | Number, b: T | Number) -> T:
        return c(op, c.as_type(a, torch.float64), c.as_type(b, torch.float64))

    return lower


for _op in ("add", "sub", "mul"):
    lowering(f"operator.{_op}", numbers=True)(_arithmetic(_op))


@lowering("operator.truediv", numbers=True)
def divide(c: Ctx, a: T | Number, b: T | Number) -> T:
    """By a number that is known: Python raises for zero."""
    if isinstance(b, T) or b == 0:
        raise Unlowered("a divisor that is known only at run time", "F602")
    return c("div", c.as_type(a, torch.float64), c.as_type(b, torch.float64))


@lowering("operator.neg", numbers=True)
def negate(c: Ctx, a: T) -> T:
    return c("neg", a)
