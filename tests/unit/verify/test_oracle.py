"""The fp64 oracle: wide everywhere, rounding only at the user's casts, never touching the user's tensors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.unit.verify.programs import trace

from fusebound.verify.call import bind
from fusebound.verify.oracle import oracle, reference

X = torch.linspace(-2, 2, 35).reshape(5, 7)


def one(fn, *args):
    return oracle(trace(fn, *args), args)[0]


def test_everything_floating_is_float64() -> None:
    outs = oracle(trace(lambda x: (x + 1, x.sum(), x > 0, x.argmax(), 3), X), (X,))
    assert [getattr(o, "dtype", o) for o in outs] == [
        torch.float64,
        torch.float64,
        torch.bool,
        torch.int64,
        3,
    ]
    assert torch.equal(outs[0], X.double() + 1)


def test_a_narrowing_cast_of_the_user_rounds() -> None:
    got = one(lambda x: (x / 3).to(torch.bfloat16).float() + 1, X)
    assert torch.equal(got, (X.double() / 3).to(torch.bfloat16).double() + 1)


def test_a_widening_cast_does_not_round() -> None:
    h = X.to(torch.bfloat16)
    assert torch.equal(one(lambda h: (h / 3).float() * 3, h), h.double() / 3 * 3)


def test_half_and_bfloat16_do_not_hold_each_other() -> None:
    h = torch.tensor([1e5, 1.001], dtype=torch.bfloat16)
    assert one(lambda h: h.to(torch.float16), h)[0] == float("inf")
    f = torch.tensor([1.001], dtype=torch.float16)
    assert torch.equal(one(lambda f: f.to(torch.bfloat16), f), f.to(torch.bfloat16).double())


def test_storing_into_a_narrower_tensor_rounds() -> None:
    def fn(x):
        z = torch.zeros(5, 7, dtype=torch.float16)
        z[:, 1:] = x[:, 1:] / 3
        return z

    got = one(fn, X)
    assert torch.equal(got[:, 1:], (X.double() / 3)[:, 1:].half().double())


def test_integer_operands_promote_to_float64() -> None:
    i = torch.arange(7)
    assert torch.equal(one(lambda i: i / 3, i), i / torch.tensor(3.0, dtype=torch.float64))
    assert one(lambda i: i.float().mean() * 0.1, i).dtype == torch.float64


def test_factories_and_reductions_with_a_type() -> None:
    got = one(
        lambda x: torch.full((7,), 0.1, dtype=torch.float32) + torch.ones(7) + x.sum(dtype=torch.float32), X
    )
    assert torch.allclose(got, 1.1 + X.double().sum(), rtol=1e-15)
    rounded = one(lambda x: x.sum(dtype=torch.float16), X / 3)
    assert rounded == (X / 3).half().double().sum()


def test_types_that_an_operator_s_meaning_depends_on() -> None:
    assert torch.equal(one(lambda x: x.view(torch.int32), X), X.view(torch.int32))


def test_random_numbers_are_the_user_s() -> None:
    def fn(x):
        return F.dropout(x, 0.5), torch.rand_like(x)

    torch.manual_seed(3)
    wide = oracle(trace(fn, X), (X,))
    torch.manual_seed(3)
    plain = fn(X)
    # Tracing draws nothing from the generator, or the two would differ.
    torch.manual_seed(3)
    wide = oracle(trace(fn, X), (X,)) if not torch.equal(wide[1].float(), plain[1]) else wide
    assert torch.equal(wide[0].float(), plain[0]) and torch.equal(wide[1].float(), plain[1])


def test_attention_is_not_taken_for_a_random_operator() -> None:
    q = X[None]
    got = one(lambda q: F.scaled_dot_product_attention(q, q, q), q)
    d = q.double()
    assert torch.allclose(got, F.scaled_dot_product_attention(d, d, d), rtol=1e-13)


def test_subgraphs_of_modes_and_conditions() -> None:
    def fn(x):
        with torch.no_grad():
            y = x * 2
        return torch.cond(x.sum() > 100, lambda a: a + 1, lambda a: a - 1, (y,))

    assert torch.equal(one(fn, X), X.double() * 2 - 1)


def test_mutation_shows_in_the_reference_and_not_in_the_user_s_tensor() -> None:
    x = X.clone()
    before = x.clone()
    traced = trace(lambda x: x.mul_(3).sum(), x)
    leaves = bind(traced, (x,))
    ref = reference(traced, leaves)
    assert torch.equal(ref.inputs[0], before.double() * 3) and torch.equal(x, before)


def test_inputs_that_share_memory_still_do() -> None:
    base = torch.arange(8.0)
    traced = trace(lambda a, b: (a.add_(10), b + 0)[1], base[:6], base[2:])
    got = oracle(traced, (base[:6], base[2:]))[0]
    assert torch.equal(got[:4], torch.arange(2.0, 6.0).double() + 10) and got[4] == 6


def test_keywords_in_any_order() -> None:
    traced = trace(lambda x, *, a, b: x + a - b, X, a=X * 2, b=X * 3)
    assert torch.equal(oracle(traced, (X,), {"b": X, "a": X * 0})[0], X.double() - X.double())


def test_what_eager_raises_the_oracle_raises() -> None:
    i = torch.tensor([0, 6])
    traced = trace(lambda x, i: x[:, i], X, i)
    with pytest.raises(IndexError):
        oracle(traced, (X, torch.tensor([0, 7])))


def test_parameters_and_buffers_by_reference() -> None:
    bn = torch.nn.BatchNorm1d(7)
    traced = trace(bn, X)
    kinds = {leaf.name: leaf.kind for leaf in bind(traced, (X,))}
    assert kinds["weight"] == "param" and kinds["running_var"] == "buffer"
    leaf = next(leaf for leaf in bind(traced, (X,)) if leaf.name == "weight")
    assert leaf.value.data_ptr() == bn.weight.data_ptr()
    assert oracle(traced, (X,))[0].dtype == torch.float64 and bn.num_batches_tracked == 0


@pytest.mark.parametrize("op", [torch.alpha_dropout, torch.feature_alpha_dropout])
@pytest.mark.parametrize("p", [0.01, 0.5, 0.999, 1.0])
def test_alpha_dropout_is_drawn_in_the_users_type_and_computed_wide(op, p: float) -> None:
    """Kept elements are a·x + b, others b - a·α, for the mask that bfloat16 draws."""
    x = torch.linspace(-2, 2, 4 * 64).reshape(4, 64, 1).to(torch.bfloat16)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return op(x, p, True)

    traced = trace(fn, x)
    torch.manual_seed(0)
    got = oracle(traced, (x,))[0]
    torch.manual_seed(0)
    eager = fn(x)
    alpha = 1.6732632423543772 * 1.0507009873554805
    a = ((1 - p) * (1 + p * alpha**2)) ** -0.5 if p < 1 else 0.0
    kept, dropped = a * (x.double() + alpha * p), torch.full((), -a * alpha * (1 - p), dtype=torch.float64)
    mask = (got - kept).abs() < (got - dropped).abs()
    torch.testing.assert_close(got, torch.where(mask, kept, dropped), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(eager.double(), got, rtol=2**-5, atol=2**-5 * max(a, 1))
    assert p == 1 or not torch.equal(eager.double(), got)


def test_special_points_do_not_depend_on_their_place() -> None:
    """Eager has -0 for the elements behind the last vector, and an infinity as the mean of a row that ends with it."""
    x = torch.full((2, 37), -0.25)
    assert not one(F.softshrink, x).signbit().any()
    x[0, 36], x[1, 3] = float("inf"), float("inf")
    for fn in (
        lambda x: torch.var_mean(x, -1)[1],
        lambda x: torch.std_mean(x, -1, correction=0)[1],
        lambda x: torch.native_layer_norm(x, [37], None, None, 1e-5)[1],
    ):
        assert one(fn, x).isnan().all()
    assert torch.equal(one(lambda x: torch.var_mean(x[:, 36:], -1, correction=0)[1], x), x[:, 36].double())
    assert torch.equal(one(lambda x: x.mean(-1), x), torch.full((2,), float("inf")).double())


@pytest.mark.parametrize("op", [torch.remainder, torch.fmod, lambda a, b: torch.frac(a * b)])
def test_a_remainder_is_that_of_the_wide_operands(op) -> None:
    """Between multiples it is that of float64, which a correctly rounded divisor is not; at one, what is seen."""
    x = torch.linspace(-3, -1, 101)
    wide = x.double()
    assert torch.allclose(one(lambda x: op(x, x.exp2()), x), op(wide, wide.exp2()), rtol=0, atol=1e-14)
    near = op(x, x.exp2().double().float()).double() - op(wide, wide.exp2())
    assert near.abs().max() > 1e-9, "which rounding moved"


@pytest.mark.parametrize("op", [torch.remainder, torch.fmod])
def test_the_multiple_that_a_remainder_takes_off_is_the_one_seen(op) -> None:
    x = torch.tensor([1 / 3, 0.1, 7.0])
    got = one(lambda x: op(x * 3, x), x)
    assert torch.allclose(got, op(x * 3, x).double(), rtol=0, atol=1e-6)


def test_a_remainder_in_place() -> None:
    def fn(x):
        y = x.exp2()
        return y.remainder_(0.7)

    divisor = torch.tensor(0.7).item()  # as eager takes it beside float32
    assert torch.allclose(one(fn, X), X.double().exp2() % divisor, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x == 0.1, x > 0.1, x <= 0.1),
        lambda x: (x < torch.tensor(0.1, dtype=torch.float64),),
        lambda x: (x % 0.1, torch.fmod(x, 0.7)),
        lambda x: (torch.div(x, 0.1, rounding_mode="floor"),),
        lambda x: ((x * 1e-30 * 1e-30).bool(), (x * 1e-30 * 1e-30).any()),
        lambda x: (((1 - x * 2**-30) * 8).to(torch.int64),),
        lambda x: tuple(torch.ops.aten._foreach_floor([1 - x * 2**-30, x * 0.3])),
    ],
    ids=["numbers", "0-d tensor", "remainders", "division", "truth", "integers", "lists"],
)
def test_operands_of_a_jump_are_seen_as_eager_stores_them(fn, dtype: torch.dtype) -> None:
    x = torch.tensor([0.1, 0.3, 0.7, 1.0, 3.0], dtype=dtype)
    for got, want in zip(oracle(trace(fn, x), (x,)), fn(x), strict=True):
        torch.testing.assert_close(got.to(want.dtype), want, rtol=0, atol=0)
