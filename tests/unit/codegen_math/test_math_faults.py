"""Integer division by zero is flagged, never a signal; lanes outside the mask are not looked at."""

from __future__ import annotations

import re

import pytest
import torch
from tests.unit.codegen_math.primitive_values import DTYPES, run

from fusebound.codegen.emit import Fn, Module, Reg
from fusebound.codegen.math import apply
from fusebound.codegen.math.probe import map_module
from fusebound.errors import BuildError
from fusebound.ir.ops import FAULTS, OPS


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
@pytest.mark.parametrize("op", ["floor_div", "rem", "fmod", "trunc_div"])
@pytest.mark.parametrize("count", [1, 16, 37])
def test_zero_divisor_is_flagged(op: str, dtype: str, count: int) -> None:
    a = torch.full((count,), 7, dtype=DTYPES[dtype])
    b = torch.full((count,), 3, dtype=DTYPES[dtype])
    assert run(op, dtype, a, b)[1] == 0
    b[-1] = 0
    assert run(op, dtype, a, b)[1] == 1 + FAULTS.index("division")


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


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_primitive_is_flagged_exactly_where_its_spec_says_that_it_raises(dtype: str) -> None:
    whole = not (DTYPES[dtype].is_floating_point or dtype == "bool")
    for op, spec in OPS.items():
        text = _code(op, dtype) if spec.cls == "pointwise" and spec.arity > 0 else ""
        if not text:
            continue
        raises = spec.raises if whole or spec.raises != "division" else None
        codes = re.findall(r"store atomic i32 (\d+)", text)
        assert {FAULTS[int(c) - 1] for c in codes} == ({raises} if raises else set()), op


def _code(op: str, dtype: str) -> str:
    """A primitive of operands of one type as LLVM assembly; empty where it has no meaning."""
    spec = OPS[op]
    types = ["bool" if op == "where" and k == 0 else dtype for k in range(spec.arity)]
    made = "bool" if spec.result == "bool" else dtype

    def body(fn: Fn, args: list[Reg]) -> Reg:
        return apply(fn, op, args, made, 8, in_dtypes=types)

    try:
        return map_module(body, types, made, 8, frozenset())
    except BuildError:
        return ""


def test_the_codes_cover_what_primitives_raise() -> None:
    """Every gather is a load whose index is checked (`codegen/llvm.py`), and nothing else is."""
    assert {s.raises for s in OPS.values()} == {None, *FAULTS}
    assert {n for n, s in OPS.items() if s.raises == "index"} == {
        n for n, s in OPS.items() if s.cls == "gather"
    }
