"""Values at which implementations differ, with the right results written out: in whole vectors and in tails."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from tests.catalogue.harness import FOREVER, PLANNED_FOR, check, rand

from fusebound.engine.compile import CompiledFunction, Options, compile

INF, NAN = math.inf, math.nan


def fused(fn: Callable[..., torch.Tensor]) -> CompiledFunction:
    """The function as one kernel, without a contest."""
    return compile(fn, Options(contest=False, expected_calls=FOREVER, hardware=PLANNED_FOR))


def same(got: torch.Tensor, want: float) -> bool:
    """Whether every element is `want`, with the sign of zero; any NaN is NaN."""
    wide = got.double()
    equal = (
        wide.isnan() if want != want else (wide == want) & (wide.signbit() == (math.copysign(1, want) < 0))
    )
    return bool(equal.all())


POINTWISE: list[tuple[str, Callable[..., torch.Tensor], tuple[float, ...], float]] = [
    ("soft shrinking", torch.nn.functional.softshrink, (-0.25,), 0.0),
    ("soft shrinking of a zero", torch.nn.functional.softshrink, (-0.0,), 0.0),
    ("hard shrinking", torch.nn.functional.hardshrink, (-0.25,), 0.0),
    ("maximum of NaN", torch.maximum, (NAN, 1.0), NAN),
    ("maximum with NaN", torch.maximum, (1.0, NAN), NAN),
    ("minimum of NaN", torch.minimum, (NAN, -INF), NAN),
    ("maximum of infinities", torch.maximum, (-INF, INF), INF),
    ("maximum of zeros", torch.maximum, (0.0, -0.0), 0.0),
    ("maximum of zeros, turned", torch.maximum, (-0.0, 0.0), 0.0),
    ("minimum of zeros", torch.minimum, (0.0, -0.0), -0.0),
    ("minimum of zeros, turned", torch.minimum, (-0.0, 0.0), -0.0),
    ("maximum of negative zeros", torch.maximum, (-0.0, -0.0), -0.0),
    ("minimum of positive zeros", torch.minimum, (0.0, 0.0), 0.0),
    ("clamp at a tensor of zeros", lambda x, y: x.clamp(min=y), (-0.0, 0.0), 0.0),
    ("clamp below a tensor of zeros", lambda x, y: x.clamp(max=y), (0.0, -0.0), -0.0),
    ("clamp below a negative zero", lambda x: x.clamp(-1.0, -0.0), (0.0,), 0.0),
    ("fmax skips NaN", torch.fmax, (NAN, 1.0), 1.0),
    ("fmax skips a second NaN", torch.fmax, (1.0, NAN), 1.0),
    ("fmin of NaN alone", torch.fmin, (NAN, NAN), NAN),
    ("fmax of zeros is the first", torch.fmax, (-0.0, 0.0), -0.0),
    ("fmin of zeros is the first", torch.fmin, (0.0, -0.0), 0.0),
    ("a bound that is NaN", lambda x: x.clamp(NAN, 1.0), (0.5,), NAN),
    ("clamp keeps NaN", lambda x: x.clamp(-1, 1), (NAN,), NAN),
    ("clamp of an infinity", lambda x: x.clamp(-1, 1), (-INF,), -1.0),
    ("clamp keeps a negative zero", lambda x: x.clamp(0.0, 1.0), (-0.0,), -0.0),
    ("relu keeps a negative zero", torch.relu, (-0.0,), -0.0),
    ("where takes no NaN from the other side", lambda x, y: torch.where(x > 0, y, x), (-2.0, NAN), -2.0),
    ("where keeps a chosen NaN", lambda x, y: torch.where(x > 0, y, x), (2.0, NAN), NAN),
    ("zero times NaN", lambda x: x * 0, (NAN,), NAN),
    ("zero times infinity", lambda x: x * 0, (INF,), NAN),
    ("zero times a negative number", lambda x: x * 0.0, (-3.0,), -0.0),
    ("infinity less itself", lambda x: x - x, (INF,), NAN),
    ("an added zero", lambda x: x + 0.0, (-0.0,), 0.0),
    ("a subtracted zero", lambda x: x - 0.0, (-0.0,), -0.0),
    ("a subnormal", lambda x: x * 1.0, (1e-40,), float(torch.tensor(1e-40))),
    ("the least subnormal", lambda x: x / 1.0, (-1e-45,), -(2.0**-149)),
    ("a subnormal difference", lambda x, y: x - y, (1.5 * 2.0**-126, 2.0**-126), 2.0**-127),
    (
        "a subnormal exponential",
        lambda x: x.exp(),
        (-100.0,),
        float(torch.tensor(-100.0).double().exp().float()),
    ),
    ("expm1 of a negative zero", torch.expm1, (-0.0,), -0.0),
    ("log1p of a negative zero", torch.log1p, (-0.0,), -0.0),
    ("expm1 near zero", torch.expm1, (2.0**-30,), 2.0**-30),
    ("log1p near zero", torch.log1p, (-(2.0**-30),), -(2.0**-30)),
    ("expm1 of a subnormal", torch.expm1, (1e-40,), float(torch.tensor(1e-40))),
    ("log1p at its pole", torch.log1p, (-1.0,), -INF),
]


@pytest.mark.parametrize(("fn", "given", "want"), [p[1:] for p in POINTWISE], ids=[p[0] for p in POINTWISE])
def test_elements(fn: Callable[..., torch.Tensor], given: tuple[float, ...], want: float) -> None:
    compiled = fused(lambda *xs: fn(*xs).abs().neg().neg() if want != want else fn(*xs).neg().neg())
    got = compiled(*(torch.full((33,), v) for v in given))  # two vectors and a tail
    assert compiled.executable is not None and len(compiled.executable.kernels) == 1
    assert same(got, want), (got, want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_a_mean_that_is_updated_value_by_value_holds_no_infinity(dtype: torch.dtype) -> None:
    """As in eager, where the infinity is not the last of its row; a plain mean and the batch's hold it."""

    def means(x: torch.Tensor) -> list[torch.Tensor]:
        x = x.neg()
        return [
            *(torch.var_mean(x, -1, correction=k)[1] for k in (0, 1, 2)), torch.std_mean(x, (1, 2))[1],
            torch.native_layer_norm(x, [33], None, None, 1e-5)[1],
            torch.native_group_norm(x, None, None, 3, 4, 33, 2, 1e-5)[1],
            torch.var_mean(x[..., :1], -1, correction=0)[1], x.mean(-1), x.amax(-1),
            torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[1],
        ]  # fmt: skip

    x = rand(3, 4, 33).to(dtype)
    x[0, 1, 5], x[1, 0, 0], x[1, 2, 20] = INF, -INF, INF
    compiled = fused(means)  # type: ignore[arg-type]
    for got, want in zip(compiled(x), means(x), strict=True):
        assert torch.equal(got.isnan(), want.isnan()) and torch.equal(got == INF, want == INF)
        assert torch.equal(got == -INF, want == -INF)
    assert compiled.executable is not None and compiled.executable.kernels


@pytest.mark.parametrize("at", [0, 16, 32])
@pytest.mark.parametrize(
    ("name", "bad", "want"),
    [
        ("sum", NAN, NAN), ("sum", INF, INF), ("mean", -INF, -INF), ("mean", NAN, NAN),
        ("amax", NAN, NAN), ("amax", INF, INF), ("amin", NAN, NAN), ("amin", INF, 1.0), ("amax", -INF, 1.0),
    ],
)  # fmt: skip
def test_one_bad_element_of_a_row(name: str, bad: float, want: float, at: int) -> None:
    x = torch.ones(3, 33)
    x[:, at] = bad
    compiled = fused(lambda x: getattr(x.neg().neg(), name)(-1))
    assert same(compiled(x), want)
    assert compiled.executable is not None and len(compiled.executable.kernels) == 1


@pytest.mark.parametrize("at", [0, 16, 32])
@pytest.mark.parametrize(("name", "others", "want"), [("amax", -0.0, 0.0), ("amin", 0.0, -0.0)])
def test_an_extremum_of_zeros_has_the_sign_of_the_standard(
    name: str, others: float, want: float, at: int
) -> None:
    """IEEE 754-2019 puts -0 below +0, wherever in the row it stands; eager's result depends on the place."""
    x = torch.full((3, 33), others)
    x[:, at] = want
    compiled = fused(lambda x: getattr(x.neg().neg(), name)(-1))
    assert same(compiled(x), want)
    assert same(compiled(torch.full((3, 33), others)), others)


@pytest.mark.parametrize("block", [slice(0, 64), slice(64, 128), slice(0, 127), slice(1, 128)], ids=str)
def test_softmax_of_rows_that_are_partly_minus_infinity(block: slice) -> None:
    x = rand(3, 128)
    x[:, block] = -INF
    compiled = fused(lambda x: torch.softmax(x.neg().neg(), -1))
    got = compiled(x)
    kept = ~x.isinf()
    want = torch.softmax(x[kept].reshape(3, -1).double(), -1)
    assert same(got[~kept], 0.0)
    assert torch.allclose(got[kept].reshape(3, -1).double(), want, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("bad", [-INF, INF, NAN])
def test_softmax_of_rows_without_a_value(name: str, bad: float) -> None:
    compiled = fused(lambda x: getattr(torch, name)(x.neg().neg(), -1))
    assert same(compiled(torch.full((3, 33), bad)), NAN)


@pytest.fixture
def flushing() -> Iterator[None]:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormals")
    yield
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("flushing")
def test_subnormals_are_flushed_where_the_user_says_so() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x * 0.5).neg()

    x = torch.full((33,), 2.0**-126)
    assert same(f(x), -0.0) and same(fused(f)(x), -0.0)


@pytest.mark.parametrize("mean", [1e4, 1e6])
@pytest.mark.parametrize("name", ["var", "std"])
def test_spread_of_data_far_from_zero(name: str, mean: float) -> None:
    x = rand(9, 1000) + mean
    check(lambda x: getattr(x.neg(), name)(-1), x)
    assert torch.allclose(
        fused(lambda x: getattr(x.neg(), name)(-1))(x).double(), getattr(x.double(), name)(-1), rtol=1e-6
    )


def test_softmax_of_large_products_is_not_contracted() -> None:
    check(lambda x, y: torch.softmax(x * y, -1), rand(9, 65) * 1e3, rand(9, 65, seed=1) * 1e3)
    check(
        lambda x, y: torch.softmax(x * y - (x * y).amax(-1, keepdim=True), -1),
        rand(9, 65) * 1e3,
        rand(9, 65, seed=1),
    )


def test_a_long_sum() -> None:
    n = 1 << 24
    compiled = fused(lambda x: x.neg().sum(-1))
    got = compiled(torch.full((2, 1), 0.1).expand(2, n))
    want = -n * float(torch.tensor(0.1))
    assert compiled.executable is not None and len(compiled.executable.kernels) == 1
    assert (got.double() - want).abs().max() <= 2.0**-24 * abs(want)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8], ids=str)
def test_the_least_integer_wraps(dtype: torch.dtype) -> None:
    """Where eager's division of it by -1 kills the process, a kernel gives the wrapped quotient. (The first call, which
    is rehearsed through eager, has other values.)"""
    least = torch.iinfo(dtype).min
    x, y = torch.full((33,), least, dtype=dtype), torch.full((33,), -1, dtype=dtype)
    for fn, want in (
        (lambda x, y: (x // y) ^ 0, least), (lambda x, y: (x % y) ^ 0, 0),
        (lambda x, y: torch.div(x, y, rounding_mode="trunc") ^ 0, least),
        (lambda x, y: x.neg() ^ 0, least), (lambda x, y: x.abs() ^ 0, least),
        (lambda x, y: (x + y) ^ 0, torch.iinfo(dtype).max), (lambda x, y: (x * y) ^ 0, least),
    ):  # fmt: skip
        compiled = fused(fn)
        compiled(x.abs().clamp(1, 9), y)
        assert compiled(x, y).tolist() == [want] * 33
        assert compiled.executable is not None and len(compiled.executable.kernels) == 1


def test_take_along_dim_takes_an_index_modulo_the_axis() -> None:
    x, i = rand(6, 4), torch.tensor([4, 7, 9, -1, -5, -9])[:, None]
    compiled = fused(lambda x, i: torch.take_along_dim(x, i, 1).neg().neg())
    assert torch.equal(compiled(x, i), torch.take_along_dim(x, i, 1))
    assert compiled.executable is not None and len(compiled.executable.kernels) == 1


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_division_by_zero_raises_what_eager_raises(name: str) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return getattr(torch, name)(x, y) + 1

    x, y = torch.arange(33), torch.ones(33, dtype=torch.int64)
    compiled = fused(f)
    assert torch.equal(compiled(x, y), f(x, y))
    y[32] = 0
    with pytest.raises(RuntimeError) as eager:
        f(x, y)
    with pytest.raises(RuntimeError) as ours:
        compiled(x, y)
    assert str(ours.value) == str(eager.value)
