"""float64 functions against multiple-precision values."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import pytest
import torch

from fusebound.codegen.math.probe import MapKernel


def run(name: str, *args: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(args[0])
    MapKernel(name, ["float64"] * len(args), "float64", lanes=8)(
        out.data_ptr(), [a.data_ptr() for a in args], out.numel()
    )
    return out


WIDE, POSITIVE, UNIT = (-30.0, 30.0), (1e-3, 1e3), (-0.999, 0.999)
CASES: dict[str, tuple[Callable[[mpmath.mpf], mpmath.mpf], tuple[float, float]]] = {
    "exp": (mpmath.exp, WIDE),
    "exp2": (lambda x: mpmath.power(2, x), WIDE),
    "expm1": (mpmath.expm1, WIDE),
    "log": (mpmath.log, POSITIVE),
    "log2": (lambda x: mpmath.log(x, 2), POSITIVE),
    "log10": (mpmath.log10, POSITIVE),
    "log1p": (mpmath.log1p, UNIT),
    "sigmoid": (lambda x: 1 / (1 + mpmath.exp(-x)), WIDE),
    "tanh": (mpmath.tanh, WIDE),
    "erf": (mpmath.erf, (-5.0, 5.0)),
    "erfc": (mpmath.erfc, (-5.0, 5.0)),
    "sin": (mpmath.sin, (-1e6, 1e6)),
    "cos": (mpmath.cos, (-1e6, 1e6)),
    "tan": (mpmath.tan, WIDE),
    "sinh": (mpmath.sinh, WIDE),
    "cosh": (mpmath.cosh, WIDE),
    "asin": (mpmath.asin, UNIT),
    "acos": (mpmath.acos, UNIT),
    "atan": (mpmath.atan, WIDE),
    "asinh": (mpmath.asinh, WIDE),
    "acosh": (mpmath.acosh, (1.001, 100.0)),
    "atanh": (mpmath.atanh, UNIT),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), POSITIVE),
}
# sigmoid and rsqrt round twice or three times, as eager does; erfc is SLEEF's 1.5 ULP version.
LIMIT = {"sigmoid": 2.5, "rsqrt": 1.5, "erfc": 1.5}


@pytest.mark.parametrize("name", CASES)
def test_float64(name: str) -> None:
    true, (lo, hi) = CASES[name]
    g = torch.Generator().manual_seed(5)
    x = lo + (hi - lo) * torch.rand(301, generator=g, dtype=torch.float64)
    got = run(name, x)
    with mpmath.workdps(40):
        for value, result in zip(x.tolist(), got.tolist(), strict=True):
            exact = true(mpmath.mpf(value))
            assert abs(exact - result) / math.ulp(float(exact)) <= LIMIT.get(name, 1.0), (value, result)


@pytest.mark.parametrize("name", CASES)
def test_float64_special_values(name: str) -> None:
    inf, nan = math.inf, math.nan
    values = [0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 5e-324, 1e-310, 710.0, -750.0, 1e20, -1e200, 1e300]
    x = torch.tensor(values, dtype=torch.float64)
    got = run(name, x)
    want = torch.cat([getattr(torch, name)(v) for v in x[:, None]])  # one at a time: eager's scalar functions
    torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-15 * 2, atol=0)
    zeros = want == 0
    assert torch.equal(torch.signbit(got[zeros]), torch.signbit(want[zeros]))


def test_float64_pow() -> None:
    g = torch.Generator().manual_seed(6)
    x = torch.rand(301, generator=g, dtype=torch.float64) * 50
    y = torch.rand(301, generator=g, dtype=torch.float64) * 40 - 20
    with mpmath.workdps(40):
        for a, b, result in zip(x.tolist(), y.tolist(), run("pow", x, y).tolist(), strict=True):
            exact = mpmath.power(mpmath.mpf(a), mpmath.mpf(b))
            assert abs(exact - result) / math.ulp(float(exact)) <= 1.0
