"""τ at zero and among subnormal numbers, where an ULP is the distance of neighbours and no share of the value."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fusebound.analysis.tau import Difference, Tau, ulp
from fusebound.ir.dtypes import DTYPES
from fusebound.verify.errors import Exact, measure

NARROW = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
STEP = 2.0**-149
"""The smallest float32."""


@pytest.mark.parametrize("name", NARROW)
def test_an_ulp_is_the_distance_to_the_next_number(name: str) -> None:
    """Over all numbers of the type, from zero up."""
    bits = torch.int16 if DTYPES[name].itemsize == 2 else torch.int8
    every = torch.arange(torch.iinfo(bits).max, dtype=bits).view(getattr(torch, name)).double()
    finite = every[every.isfinite()]
    assert np.array_equal(ulp(finite[:-1].numpy(), name), finite.diff().numpy())
    assert ulp(-1.5, name) == ulp(1.5, name) == DTYPES[name].ulp


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_the_table_of_types_is_the_frameworks(name: str) -> None:
    info, mine = torch.finfo(getattr(torch, name)), DTYPES[name]
    assert (mine.ulp, mine.smallest_normal) == (info.eps, info.smallest_normal)


@pytest.mark.parametrize(("eager", "steps"), [(0.0, 4), (0.0, 5), (1e-40, 4), (1e-40, 5), (2.0**-126, 5)])
def test_near_zero_a_distance_counts_in_subnormal_steps(eager: float, steps: int) -> None:
    rounded = float(np.float32(eager))
    d = Difference.between(np.array([rounded]), np.array([rounded + steps * STEP]), "float32", Tau(ulp=4))
    assert d.ulp == steps and (d.excess <= 1) == (steps <= 4)


def test_verify_holds_a_zero_of_eagers_to_its_ulp() -> None:
    eager = torch.zeros(3)
    errors = measure(torch.tensor([0.0, 1e-9, 0.0]), eager, Exact(eager.double()), Tau(ulp=1000.0))
    assert errors.tau_share > 1
    errors = measure(torch.tensor([0.0, 1e-9, 0.0]), eager, Exact(eager.double()), Tau(1e-9, ulp=1000.0))
    assert errors.tau_share == pytest.approx(1)
