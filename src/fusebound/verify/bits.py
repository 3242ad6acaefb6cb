"""Equality bit for bit, but for NaN, and the last bit of a number."""

from __future__ import annotations

from typing import Any

import torch


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two strided tensors of one shape and type hold the same values.

    A zero's sign counts; the bits of a NaN, which arithmetic need not keep, don't.
    """
    if a.is_complex():
        a, b = (torch.view_as_real(t.resolve_conj()) for t in (a, b))
    if not a.is_floating_point():
        return torch.equal(a, b)
    if a.dtype.itemsize == 1:  # 8-bit floats have few operators of their own
        a, b = a.to(torch.float64), b.to(torch.float64)
    if torch.equal(a, b):
        return torch.equal(a.signbit(), b.signbit())
    return bool((((a == b) & (a.signbit() == b.signbit())) | (a.isnan() & b.isnan())).all())


def ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Unit in the last place of `dtype` at each of the float64 `values`; the subnormal step near zero."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(values.abs().clamp(min=info.smallest_normal, max=info.max))
    return torch.ldexp(torch.full_like(values, info.eps), exponent - 1)


def same_value(a: Any, b: Any) -> bool:
    """Whether two Python values are equal, or both NaN."""
    return bool(a == b) or bool(a != a and b != b)
