"""What counts as the same bits, type by type."""

from __future__ import annotations

import math

import pytest
import torch

from fusebound.verify.bits import same_bits
from fusebound.verify.program import Outcome
from fusebound.verify.repeat import differs

REAL = (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2
)  # fmt: skip


@pytest.mark.parametrize("dtype", [*REAL, torch.complex64, torch.complex128], ids=str)
def test_signs_of_zeros_count_and_those_of_nan_do_not(dtype: torch.dtype) -> None:
    def of(*values: float) -> torch.Tensor:
        return torch.tensor(values).to(dtype)

    nan = torch.full((), math.nan).copysign(torch.tensor(-1.0)).item()
    assert same_bits(of(1.0, math.nan), of(1.0, nan)) and same_bits(of(0.0, -0.0), of(0.0, -0.0))
    assert not same_bits(of(1.0, 0.0), of(1.0, -0.0))
    assert not same_bits(of(math.nan, 0.0), of(math.nan, -0.0))
    assert not same_bits(of(1.0, math.nan), of(1.0, 2.0)) and not same_bits(of(1.0, 2.0), of(1.0, 3.0))
    assert same_bits(of(), of())


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.uint16], ids=str)
def test_integers_and_bools_are_compared_as_they_are(dtype: torch.dtype) -> None:
    a, b = torch.tensor([0, 1]).to(dtype), torch.tensor([1, 1]).to(dtype)
    assert same_bits(a, a.clone()) and not same_bits(a, b)


def test_conjugated_views_are_compared_by_value() -> None:
    z = torch.tensor([1 + 2j, complex(0.0, math.nan)])
    assert same_bits(z.conj(), z.conj().resolve_conj()) and not same_bits(z.conj(), z)


def test_runs_of_other_layouts_and_types_are_compared() -> None:
    dense = torch.eye(3)
    runs = [Outcome((t,)) for t in (dense.to_sparse(), dense.to_sparse(), (2 * dense).to_sparse())]
    assert not differs(runs[0], runs[1]) and differs(runs[0], runs[2])
    assert differs(Outcome((dense,)), Outcome((dense.double(),)))
    assert not differs(Outcome((math.nan, None)), Outcome((math.nan, None)))
