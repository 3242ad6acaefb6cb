"""`fusebound.testing`: assertions about plans in the user's tests."""

from __future__ import annotations

import pytest
import torch

from fusebound.errors import UsageError
from fusebound.testing import assert_fused


def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 2, -1) @ w


ARGS = (torch.zeros(512, 1024), torch.zeros(1024, 16))
SETTINGS = {"hardware": "cpu-avx512", "expected_calls": 10**9}


def test_operators_of_one_kernel_pass() -> None:
    assert_fused(block, *ARGS, operators=("mul", "softmax"), **SETTINGS)


def test_a_boundary_is_named_with_its_code() -> None:
    with pytest.raises(
        AssertionError, match=r"softmax and matmul are not one kernel: F607 in the dependence gate"
    ):
        assert_fused(block, *ARGS, operators=("mul", "softmax", "matmul"), **SETTINGS)


def test_an_unknown_operator_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        assert_fused(block, *ARGS, operators=("mul", "softmx"), **SETTINGS)
