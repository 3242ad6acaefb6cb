"""The long double reference of float64 programs."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.unit.verify.programs import trace

from fusebound.verify.call import bind
from fusebound.verify.check import verify
from fusebound.verify.extended import Extended, NoReference, split
from fusebound.verify.extended_ops import OPS
from fusebound.verify.inputs import PLAIN

torch.manual_seed(0)
X = torch.randn(6, 40, dtype=torch.float64)
W = torch.rand(40, dtype=torch.float64) + 0.5


def residues(fn, *args):
    """How far eager is from the reference, relative to the largest value, per output."""
    traced = trace(fn, *args)
    outputs, _ = Extended(traced)(bind(traced, args))
    eager = fn(*args)
    eager = eager if isinstance(eager, tuple) else (eager,)
    found = []
    for mine, theirs in zip(outputs, eager, strict=True):
        value, rest = split(mine)
        found.append(float(((theirs - value) - rest).abs().max() / theirs.abs().max()))
    return found


def norm_in_place(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return F.batch_norm(x, mean, var, training=True, momentum=0.3), mean, var


def places(x: torch.Tensor) -> torch.Tensor:
    """The columns from the last one on, in each row."""
    return torch.arange(40).flip(0).expand(6, 40) % x.shape[1]


SCALARS = (torch.sum, torch.mean, lambda x: x.amax(0), lambda x: x.cumsum(0), lambda x: torch.softmax(x, 0))
PROGRAMS = {
    "norms": lambda x, w: (
        F.layer_norm(x, (40,), w, w),
        F.rms_norm(x, (40,), w),
        F.normalize(x),
        F.batch_norm(x, w, w),
        F.group_norm(x, 4, w, w),
        F.batch_norm(x, None, None, w, w, training=True),
        F.instance_norm(x.reshape(2, 3, 40), w[:3], w[:3], w[:3], w[:3]),
        F.instance_norm(x.reshape(2, 3, 40)),
        F.instance_norm(x.reshape(2, 3, 40), w[:3], w[:3], use_input_stats=False),
    ),
    "running statistics": lambda x, w: norm_in_place(x, w.clone(), w * 2),
    "sums": lambda x, w: (x.sum(), x.mean(-1), x.var(-1), x.std(0), *torch.std_mean(x, 1)),
    "reductions": lambda x, w: (x.logsumexp(-1), x.cumsum(0), x.amax(0)),
    "ranges": lambda x, w: (
        x * torch.arange(40, dtype=x.dtype),
        torch.arange(0.3, 4.1, 0.7, dtype=x.dtype),
        torch.arange(2, 6) + x.sum(),
    ),
    "activations": lambda x, w: (F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.elu(x)),
    "softmax": lambda x, w: (torch.softmax(x, -1), F.log_softmax(x, 0), F.cross_entropy(x, x.argmax(-1))),
    "repeats": lambda x, w: (x.repeat(2, 1, 3), w.repeat(2, 2)),
    "moves": lambda x, w: (x.t()[1:, ::2].flip(0), torch.cat([x, x * w])[:, 3], x.expand(2, 6, 40)),
    "parts": lambda x, w: (
        F.pad(x, (1, -2, 0, 3), value=0.3),
        x.diagonal(1),
        torch.tril(x) * x.split([1, 5], 0)[1].sum(),
        torch.slice_scatter(x, x[:, :3] * 0.1, 1, 1, 7, 2),
        torch.select_scatter(x, w, 0, -2),
    ),
    "places": lambda x, w: (
        x[:, [3, 1, 3]],
        x[[0, -2]][:, None, [1, 2]],
        x.gather(1, places(x)[:, :3]),
        x.scatter_add(1, places(x)[:2] // 2, x * 0.3),
        x.scatter(1, places(x)[:2, :5], x * 0.3).scatter(0, places(x)[:1, 34:], 0.1),
        x.index_add(0, places(x)[0, :3] % 2, x[:3]),
        x.index_fill(1, places(x)[0, :3], 0.1),
        *(v * 0.1 for v in (x.max(0).values, x.min(-1, keepdim=True).values)),
        x.max(1).indices.double() * 0.1,
    ),
    "sizes of the run": lambda x, w: (x[x > 0] * 0.1, x[(x > 0).any(1)] * w, x[x > 1] + 1),
    "one number": lambda x, w: tuple(f(x[0, 0]) for f in SCALARS),
    "products": lambda x, w: (x.cumprod(0), torch.addmm(w, x, w.outer(w), alpha=0.3), torch.hypot(x, w)),
    "functions": lambda x, w: (torch.erf(x), torch.expm1(x), torch.atan2(x, w), x.abs() ** 1.3),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_eager_is_within_rounding_of_the_reference(name: str) -> None:
    assert all(r < 1e-15 for r in residues(PROGRAMS[name], X, W))


@pytest.mark.parametrize("x", [-7.0, -2.5, -0.3, 0.0, 0.1, 0.99, 1.01, 2.5, 5.0, 9.0, 25.0])
@pytest.mark.parametrize("name", ["erf", "erfc"])
def test_erf_in_long_double(name: str, x: float) -> None:
    with mpmath.workdps(40), np.errstate(all="ignore"):
        got = OPS[name](np.array([x], dtype=np.longdouble))[0]
        mine = mpmath.mpf(np.format_float_scientific(got, unique=False, precision=30))
        true = getattr(mpmath, name)(x)
        assert abs(mine - true) <= abs(true) * mpmath.mpf(2) ** -58


@pytest.mark.parametrize("rounding", ["remainder", "floor", "trunc"])
def test_remainders_and_rounded_quotients_are_eagers(rounding: str) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a % b if rounding == "remainder" else torch.div(a, b, rounding_mode=rounding)

    x = torch.tensor([-5.5, -0.0, 0.0, 4.0, 0.3, 5.5], dtype=torch.float64)
    a, b = torch.cartesian_prod(
        x, torch.tensor([-2.0, 2.0, 0.75, math.inf], dtype=torch.float64)
    ).T.contiguous()
    (got,), _ = Extended(traced := trace(fn, a, b))(bind(traced, (a, b)))
    value, want = torch.from_numpy(got.astype(np.float64)), fn(a, b)
    assert torch.equal(value, want) and torch.equal(value.signbit(), want.signbit())


@pytest.mark.parametrize("fn", [torch.remainder, torch.fmod])
def test_a_remainder_where_the_quotient_overflows_is_exact(fn) -> None:
    """Eager's vectors give NaN there and its tails the value, so that eager can't stand in for the reference."""
    a, b = (torch.full((33,), v, dtype=torch.float64) for v in (7.0, 3 * 2.0**-1074))
    (got,), _ = Extended(traced := trace(fn, a, b))(bind(traced, (a, b)))
    assert (got == math.fmod(7.0, 3 * 2.0**-1074)).all()


SEEN = {
    "floor": lambda x: (x / 0.1).floor(),
    "rounding mode": lambda x: torch.div(x / 0.1, 1.0, rounding_mode="floor"),
    "comparison": lambda x: torch.where(x / 0.1 >= x * 10, 1.0, x),
    "sign": lambda x: (x * 1e-200 * 1e-200).sign(),
    "any": lambda x: (x * 1e-200 * 1e-200).any(),
    "integer of float32": lambda x: (x.float() * (1 - 2**-30)).to(torch.int32),
    "number beside float32": lambda x: x.float() / 40960 == 0.1,
}


@pytest.mark.parametrize("name", SEEN)
def test_operands_of_a_jump_are_seen_as_eager_stores_them(name: str) -> None:
    """4096 / 0.1 is 40959.9999999999977 in long double and 40960 in float64."""
    x = torch.tensor([4096.0, 1.0, 2.0], dtype=torch.float64)
    (got,), _ = Extended(traced := trace(SEEN[name], x))(bind(traced, (x,)))
    np.testing.assert_array_equal(got, SEEN[name](x).numpy())


def test_a_jump_of_the_reference_alone_excuses_nothing() -> None:
    x = torch.arange(1.0, 513, dtype=torch.float64)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x / 0.1).floor()

    wrong = verify(lambda x: fn(x) + (x == 3), trace(fn, x), (x,), sets=("given",))
    assert not wrong.ok


@pytest.mark.parametrize(
    "fn", [lambda x: x / 0.1 % 1.0, lambda x: torch.fmod(x / 0.1, 1.0), lambda x: (x / 0.1).frac()]
)
def test_a_remainder_takes_the_multiple_of_what_is_seen_off_the_wide_operand(fn) -> None:
    x = torch.tensor([4096.0, 1.0], dtype=torch.float64)
    (got,), _ = Extended(traced := trace(fn, x))(bind(traced, (x,)))
    wide = x.numpy().astype(np.longdouble) / np.longdouble(0.1)
    np.testing.assert_array_equal(got, wide - np.rint(wide))
    assert (got < 0).all() and not fn(x).any()


def test_mutations_and_casts() -> None:
    def fn(x, w):
        y = x.float().double() + w
        x.mul_(3)
        return y

    traced = trace(fn, X.clone(), W)
    outputs, changed = Extended(traced)(bind(traced, (X.clone(), W)))
    assert torch.equal(split(outputs[0])[0], X.float().double() + W)
    assert list(changed) == [0] and torch.equal(split(changed[0])[0], X * 3)


def test_an_operator_without_a_long_double_form_is_said_to_be() -> None:
    traced = trace(lambda x: torch.fft.rfft(x).abs(), X)
    with pytest.raises(NoReference):
        Extended(traced)(bind(traced, (X,)))
    result = verify(lambda x: torch.fft.rfft(x).abs(), traced, (X,), sets=PLAIN)
    assert result.ok and any("wider than float64" in n for n in result.notes)


@pytest.mark.parametrize(
    ("fn", "args", "why"),
    [
        (lambda x: torch.linalg.inv(x[:, :6]), (X,), "a token"),
        (lambda x, i: x[0, 0].take(i), (X, torch.tensor(0)), "decomposed"),
        (lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5), (X[None],), "another order"),
    ],
)
def test_programs_that_have_no_long_double_form_are_compared_with_eager(fn, args, why: str) -> None:
    traced = trace(fn, *args)
    with pytest.raises(NoReference, match=why):
        Extended(traced)(bind(traced, args))
    assert verify(fn, traced, args, sets=PLAIN).ok


@pytest.mark.parametrize(
    ("fn", "kernel", "right"),
    [
        (lambda x: x.sum(-1), lambda x: x.flip(-1).sum(-1), True),
        (lambda x: F.softmax(x, -1), lambda x: F.softmax(x.flip(-1), -1).flip(-1), True),
        (lambda x: x.var(-1), lambda x: ((x * x).mean(-1) - x.mean(-1) ** 2) * (40 / 39), False),
        (torch.exp, lambda x: torch.exp(x) * (1 + 3e-15), False),
        (lambda x: x * 3 + 1, lambda x: (x.float() * 3 + 1).double(), False),
    ],
)
def test_float64_kernels_are_judged(fn, kernel, right: bool) -> None:
    result = verify(kernel, trace(fn, X), (X,))
    assert result.ok is right, result.summary()
    assert not result.notes


def test_what_numpy_refuses_has_no_long_double_form() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    x = torch.empty(3, 0, dtype=torch.float64)
    result = verify(fn, trace(fn, x), (x,), sets=PLAIN)
    assert result.ok and any("no long double form" in n for n in result.notes)


def test_a_draw_like_a_number_is_a_number() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.randn_like(x.mean()) + x

    traced = trace(fn, X)
    torch.manual_seed(0)
    want = fn(X)
    torch.manual_seed(0)
    outputs, _ = Extended(traced)(bind(traced, (X,)))
    torch.testing.assert_close(split(outputs[0])[0], want)


def test_float64_of_narrower_numbers_has_float64_for_a_reference() -> None:
    x = torch.linspace(0.3, 9, 31, dtype=torch.bfloat16)
    signs = torch.ones(31)

    def f(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return torch.copysign((3.0 / x).to(torch.float64), s)  # copysign has no long double form

    captured = trace(f, x, signs)
    once = verify(
        lambda x, s: torch.copysign((3.0 / x.double()).bfloat16().double(), s), captured, (x, signs)
    )
    assert once.ok and any(c.verdict == "nearer fp64" for c in once.checks), once.summary()
    wrong = verify(lambda x, s: f(x, s) * 1.01, captured, (x, signs), sets=("given",))
    assert not wrong.ok


def test_a_flip_of_one_element_keeps_no_negative_stride() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.flip(0) * 1.1, x.argmin(1, keepdim=True).flip(0, 1)

    x = torch.linspace(0.3, 9, 16, dtype=torch.float64).reshape(1, 16)
    for given in (x, x.t().contiguous()):
        assert verify(fn, trace(fn, given), (given,), sets=("given",)).ok


@pytest.mark.parametrize("order", [0, 1, 2, 3, -1, 0.5, float("inf"), float("-inf")])
def test_norms_of_any_order_have_a_reference(order: float) -> None:
    x = torch.linspace(0.3, 9, 31, dtype=torch.float64)

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.linalg.vector_norm(x, order), torch._foreach_norm([x], order)[0]

    found = verify(fn, trace(fn, x), (x,), sets=("given",))
    assert found.ok and not found.notes, found.summary()
