"""Integer division by zero is flagged, never a signal; lanes outside the mask are not looked at."""

from __future__ import annotations

import pytest
import torch
from tests.unit.codegen_math.primitive_values import DTYPES, run

from fusebound.codegen.emit import Module
from fusebound.codegen.math import FLAG_ZERO_DIVISION, apply
from fusebound.errors import BuildError


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
@pytest.mark.parametrize("op", ["floor_div", "rem", "fmod", "trunc_div"])
@pytest.mark.parametrize("count", [1, 16, 37])
def test_zero_divisor_is_flagged(op: str, dtype: str, count: int) -> None:
    a = torch.full((count,), 7, dtype=DTYPES[dtype])
    b = torch.full((count,), 3, dtype=DTYPES[dtype])
    assert run(op, dtype, a, b)[1] == 0
    b[-1] = 0
    assert run(op, dtype, a, b)[1] == FLAG_ZERO_DIVISION


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8"])
def test_least_value_by_minus_one_wraps(dtype: str) -> None:
    least = torch.iinfo(DTYPES[dtype]).min
    a = torch.full((19,), least, dtype=DTYPES[dtype])
    b = torch.full((19,), -1, dtype=DTYPES[dtype])
    for op, want in (("trunc_div", least), ("floor_div", least), ("rem", 0), ("fmod", 0)):
        got, flag = run(op, dtype, a, b)
        assert got.tolist() == [want] * 19
        assert flag == 0


def test_operator_without_a_meaning() -> None:
    fn = Module().function("f", [("x", "<4 x i32>")])
    with pytest.raises(BuildError, match="no code for the primitive exp of int32"):
        apply(fn, "exp", fn.parameters, "int32", 4, in_dtypes=["int32"])


def test_flag_needs_a_flag_word() -> None:
    fn = Module().function("f", [("x", "<4 x i32>"), ("y", "<4 x i32>")])
    with pytest.raises(BuildError, match="no flag word"):
        apply(fn, "rem", fn.parameters, "int32", 4, in_dtypes=["int32", "int32"])
