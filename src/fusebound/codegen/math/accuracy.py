"""How far the float32 functions are from the true values, in units in the last place.

The reference is torch's float64 function, whose own error is below 10⁻⁸ ULP of float32. Differences of class
(finite, infinite, NaN, the sign of a zero) are counted apart; they are never tolerated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusebound.codegen.math.probe import MapKernel

if TYPE_CHECKING:
    import torch

FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sigmoid", "tanh", "erf", "erfc", "sin", "cos",
    "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "rsqrt", "sqrt", "reciprocal",
)  # fmt: skip
"""The functions of one argument; each is also the name of torch's."""


@dataclass(frozen=True, slots=True)
class Error:
    """The greatest error over a sample: `ulp` at `worst`, and the inputs whose result is of another class."""

    ulp: float
    worst: tuple[float, ...]
    of_other_class: tuple[tuple[float, ...], ...]

    def merged(self, other: Error) -> Error:
        """The errors of two samples together."""
        first = self if self.ulp >= other.ulp else other
        return Error(first.ulp, first.worst, (self.of_other_class + other.of_other_class)[:8])


def floats(lo: int, hi: int, step: int = 1) -> torch.Tensor:
    """float32 values by bit pattern, from `lo` up to `hi` (exclusive) as unsigned 32-bit integers."""
    import torch

    return torch.arange(lo, hi, step, dtype=torch.int64).to(torch.int32).view(torch.float32)


def measure(kernel: MapKernel, name: str, *args: torch.Tensor) -> Error:
    """Run `kernel` (of float32) on contiguous `args` and compare with torch's float64 function `name`."""
    import torch

    got = torch.empty_like(args[0])
    kernel(got.data_ptr(), [a.data_ptr() for a in args], got.numel())
    true = getattr(torch, name)(*(a.double() for a in args))
    nearest = true.float()
    same = torch.isfinite(nearest) & torch.isfinite(got)
    other = _class(nearest) != _class(got)
    errors = torch.where(same, (got.double() - true).abs() / _ulp(true), 0.0)
    worst = int(errors.argmax())
    rows = other.nonzero().flatten()[:8].tolist()
    return Error(
        float(errors[worst]),
        tuple(a[worst].item() for a in args),
        tuple(tuple(a[i].item() for a in args) for i in rows),
    )


def _ulp(true: torch.Tensor) -> torch.Tensor:
    """The distance of neighbouring float32 numbers around float64 values; at least the smallest subnormal."""
    import torch

    exponent = torch.frexp(true).exponent.clamp(min=-125)
    return torch.ldexp(torch.ones_like(true), exponent - 24)


def _class(x: torch.Tensor) -> torch.Tensor:
    """0 NaN, else ±1 zero, ±2 finite, ±3 infinite, by sign; a result may round to zero or infinity or not."""
    import torch

    size = torch.where(x == 0, 1, torch.where(torch.isinf(x), 3, 2))
    signed = torch.where(torch.signbit(x), -size, size)
    return torch.where(torch.isnan(x), 0, signed)
