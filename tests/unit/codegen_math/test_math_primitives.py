"""Arithmetic, comparisons, rounding, shifts and casts against eager on edge values of every type."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.unit.codegen_math.primitive_values import DTYPES, edge_pairs, edge_values, identical, run

from fusebound.codegen.math.probe import MapKernel

INTS = ["int64", "int32", "int16", "int8", "uint8"]
FLOATS = ["float64", "float32", "float16", "bfloat16"]
COMPARE = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}


def maximum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """IEEE 754-2019's: the sum of two zeros is -0 only where both are. Eager's depends on the place in the tensor."""
    floats = a.dtype.is_floating_point
    return torch.where((a == 0) & (b == 0), a + b, torch.maximum(a, b)) if floats else torch.maximum(a, b)


def minimum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return -maximum(-a, -b) if a.dtype.is_floating_point else torch.minimum(a, b)


ARITHMETIC = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": maximum, "minimum": minimum}
BITS = {
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
}
DIVISION = {
    "floor_div": torch.floor_divide,
    "rem": torch.remainder,
    "fmod": torch.fmod,
    "trunc_div": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
}
ROUND = {"floor": torch.floor, "ceil": torch.ceil, "round": torch.round, "trunc": torch.trunc}
CLASSES = {"isnan": torch.isnan, "isinf": torch.isinf, "isfinite": torch.isfinite}
Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def check(op: str, want: torch.Tensor, *args: torch.Tensor) -> None:
    """The primitive's result is eager's, bit for bit (any NaN for NaN), and nothing is flagged."""
    got, flag = run(op, str(want.dtype).removeprefix("torch."), *args)
    wrong = ~identical(got, want)
    rows = wrong.nonzero().flatten()[:5].tolist()
    assert not rows, [(*(a[i].item() for a in args), got[i].item(), want[i].item()) for i in rows]
    assert flag == 0


def safe_for_division(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Without the pairs that make eager raise, or the process die (least value / -1)."""
    keep = (b != 0) & ~((a == torch.iinfo(a.dtype).min) & (b == -1))
    return a[keep].contiguous(), b[keep].contiguous()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", COMPARE)
def test_comparisons(op: str, dtype: str) -> None:
    a, b = edge_pairs(dtype)
    check(op, COMPARE[op](a, b), a, b)


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic(op: str, dtype: str) -> None:
    a, b = edge_pairs(dtype)
    check(op, ARITHMETIC[op](a, b), a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_extrema_without_the_instruction_for_them(op: str, dtype: str) -> None:
    a, b = edge_pairs(dtype)
    out = torch.empty_like(a)
    MapKernel(op, (dtype, dtype), dtype, lanes=4)(out.data_ptr(), [a.data_ptr(), b.data_ptr()], len(a))
    assert bool(identical(out, ARITHMETIC[op](a, b)).all())


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
@pytest.mark.parametrize("op", ["clamp_min", "clamp_max"])
def test_clamps_keep_nan_and_the_sign_of_a_zero(op: str, dtype: str) -> None:
    x, bound = edge_pairs(dtype)
    check(op, torch.where(x < bound if op == "clamp_min" else x > bound, bound, x), x, bound)


@pytest.mark.parametrize("op", ["add", "mul", "maximum", "minimum", "and", "or", "xor"])
def test_bool_arithmetic(op: str) -> None:
    a, b = edge_pairs("bool")
    check(op, {**ARITHMETIC, **BITS}[op](a, b), a, b)


@pytest.mark.parametrize("dtype", FLOATS)
def test_division(dtype: str) -> None:
    a, b = edge_pairs(dtype)
    check("div", torch.div(a, b), a, b)


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("op", BITS)
def test_bits_and_shifts_beyond_the_width(op: str, dtype: str) -> None:
    a, b = edge_pairs(dtype)
    check(op, BITS[op](a, b), a, b)


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("op", DIVISION)
def test_integer_division(op: str, dtype: str) -> None:
    a, b = safe_for_division(*edge_pairs(dtype))
    check(op, DIVISION[op](a, b), a, b)


@pytest.mark.parametrize("dtype", INTS)
def test_integer_power(dtype: str) -> None:
    a, b = edge_pairs(dtype)
    check("pow", torch.pow(a, b), a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["fmod", "rem"])
def test_float_remainders_are_exact(op: str, dtype: str) -> None:
    """Against numpy's float64; eager's own vector loop gives NaN where the quotient overflows."""
    a, b = edge_pairs(dtype)
    with np.errstate(all="ignore"):
        exact = {"fmod": np.fmod, "rem": np.remainder}[op](a.double().numpy(), b.double().numpy())
    want = torch.from_numpy(exact).to(a.dtype)
    got, _ = run(op, dtype, a, b)
    same = identical(got, want) | ((got == 0) & (want == 0))
    assert bool(same[torch.isfinite(b)].all())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", ["floor_div", "trunc_div"])
def test_float_floor_and_trunc_division(op: str, dtype: str) -> None:
    a, b = edge_pairs(dtype)
    check(op, DIVISION[op](a, b), a, b)


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
@pytest.mark.parametrize("op", ["neg", "abs", "sign"])
def test_signs(op: str, dtype: str) -> None:
    x = edge_values(dtype)
    check(op, {"neg": torch.neg, "abs": torch.abs, "sign": torch.sign}[op](x), x)


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
@pytest.mark.parametrize("op", ROUND)
def test_rounding(op: str, dtype: str) -> None:
    x = edge_values(dtype)
    check(op, ROUND[op](x), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", CLASSES)
def test_classes(op: str, dtype: str) -> None:
    x = edge_values(dtype)
    check(op, CLASSES[op](x), x)


@pytest.mark.parametrize("dtype", [*INTS, "bool"])
def test_not(dtype: str) -> None:
    x = edge_values(dtype)
    check("not", torch.bitwise_not(x), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_where(dtype: str) -> None:
    a, b = edge_pairs(dtype)
    condition = torch.arange(a.numel()) % 3 == 0
    check("where", torch.where(condition, a, b), condition, a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fma_rounds_once(dtype: str) -> None:
    a, b = edge_pairs(dtype)
    c = b.flip(0)
    check("fma", torch.addcmul(c, a, b), a, b, c)


def test_fma_keeps_the_sign_of_a_product_that_underflows() -> None:
    a, b = torch.tensor([-1e-30]).repeat(40), torch.tensor([1e-30]).repeat(40)
    check("fma", torch.tensor([-0.0]).repeat(40), a, b, torch.tensor([-0.0]).repeat(40))


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_casts(source: str, target: str) -> None:
    x = edge_values(source).repeat(3)
    check("cast", x.to(DTYPES[target]), x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_floats_round_to_nearest_even(dtype: str) -> None:
    g = torch.Generator().manual_seed(1)
    bits = torch.randint(0, 1 << 32, (300_000,), generator=g).to(torch.int32)
    ties = (bits & -0x10000) | 0x8000
    x = torch.cat([bits, ties]).view(torch.float32)
    check("cast", x.to(DTYPES[dtype]), x)


@pytest.mark.parametrize("dtype", ["int32", "int16", "int8", "uint8"])
def test_quotients_next_to_integers(dtype: str) -> None:
    """The float quotient of the generated code must not round up to the next integer."""
    info = torch.iinfo(DTYPES[dtype])
    g = torch.Generator().manual_seed(2)
    divisor = torch.randint(1, info.max, (200_000,), generator=g)
    quotient = torch.randint(0, info.max, (200_000,), generator=g) % (info.max // divisor + 1)
    a = (divisor * quotient - 1).clamp(info.min, info.max).to(DTYPES[dtype])
    b = divisor.to(DTYPES[dtype])
    for op, fn in DIVISION.items():
        check(op, fn(a, b), a, b)
