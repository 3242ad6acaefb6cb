"""The values that programs are verified on: valid, varied, and in the tensors that the user gave."""

from __future__ import annotations

import pytest
import torch
from tests.unit.verify.programs import trace

from fusebound.verify.call import Leaf, bind
from fusebound.verify.exact import constants
from fusebound.verify.inputs import (
    AS_A_WHOLE,
    EDGES,
    EVERYWHERE,
    FULL_RANGE,
    GIVEN,
    LIKE,
    RARE,
    SMALL_STATE,
    SPECIAL_SETS,
    fill,
    floats,
    index_sets,
    state_sets,
)  # fmt: skip
from fusebound.verify.layouts import BOUNDARY_SIZES, TRANSPOSED, boundary_variants
from fusebound.verify.shapes import verify_shapes


def leaf(t: torch.Tensor, name: str = "x", kind: str = "user") -> Leaf:
    return Leaf(name, kind, t)


def test_every_set_that_a_rule_of_the_verifier_names_is_drawn() -> None:
    assert {*AS_A_WHOLE, *EDGES, *EVERYWHERE, *RARE} <= set(SPECIAL_SETS)


def test_integers_stay_in_the_range_given_and_bools_vary() -> None:
    i, b = torch.tensor([3, 9, 5] * 20), torch.zeros(200, dtype=torch.bool)
    fill([leaf(i), leaf(b, "b")], LIKE, 0)
    assert i.min() >= 3 and i.max() <= 9 and len(i.unique()) > 3
    assert 20 < int(b.sum()) < 180


def test_marks_among_indices_stay_the_only_negative_values() -> None:
    targets = torch.tensor([5, -100, 17, 3, -100, 40] * 30)
    fill([leaf(targets)], LIKE, 0)
    assert set(targets.unique().tolist()) == {-100, 3, 5, 17, 40}


def test_constants_and_equal_integers_keep_their_values() -> None:
    c, n = torch.arange(4.0), torch.full((5,), 7)
    fill([leaf(c, "c", "const"), leaf(n, "n")], LIKE, 0)
    assert torch.equal(c, torch.arange(4.0)) and torch.equal(n, torch.full((5,), 7))


def test_values_like_the_given_ones() -> None:
    x = torch.randn(1000) * 3 + 50
    p = torch.rand(1000)
    var = torch.ones(1000)
    fill([leaf(x), leaf(p, "p"), leaf(var, "bn.running_var", "buffer")], LIKE, 1)
    assert 49 < x.mean() < 51 and 2 < x.std() < 4
    assert p.min() >= 0 and var.min() >= 0.1


def test_masks_stay_where_they_are() -> None:
    m = torch.where(torch.rand(64) < 0.5, torch.tensor(0.0), torch.tensor(float("-inf")))
    lowest = torch.full((4,), torch.finfo(torch.float32).min)
    where, before = m.isinf(), lowest.clone()
    fill([leaf(m), leaf(lowest, "lowest")], LIKE, 0)
    assert torch.equal(m.isinf(), where) and torch.equal(lowest, before)


def test_special_values_of_every_class_appear_and_some_rows_have_none() -> None:
    x = torch.randn(64, 100)
    fill([leaf(x)], "special values", 0)
    assert x.isnan().any() and (x == float("inf")).any() and (x == float("-inf")).any()
    zero = x == 0
    assert (zero & x.signbit()).any() and (zero & ~x.signbit()).any()
    tiny = (x != 0) & (x.abs() < torch.finfo(torch.float32).smallest_normal)
    assert tiny.any() and x[::4].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", SPECIAL_SETS)
def test_every_set_fits_every_type(dtype: torch.dtype, kind: str) -> None:
    x = torch.randn(12, 20).to(dtype)
    before = x.clone()
    fill([leaf(x)], kind, 3)
    assert not torch.equal(x, before)
    again = before.clone()
    fill([leaf(again)], kind, 3)
    assert torch.equal(again.nan_to_num(), x.nan_to_num())
    if kind == "-inf rows":
        assert (x[::3] == float("-inf")).all() and x[1].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_products_of_small_numbers_are_about_the_least_normal_one(dtype: torch.dtype) -> None:
    x = torch.randn(12, 20).to(dtype)
    fill([leaf(x)], "small products", 3)
    assert (x != 0).all()
    sizes = (x.double().abs().median() / torch.finfo(dtype).smallest_normal ** 0.5).item()
    assert 1 / 16 < sizes < 16


@pytest.mark.parametrize("kind", [TRANSPOSED, FULL_RANGE])
def test_sets_about_layouts_and_integers_keep_the_range_of_floats(kind: str) -> None:
    x = torch.rand(12, 20) + 1
    fill([leaf(x)], kind, 3)
    assert (x >= 0).all()


def test_peaks_lie_at_both_ends_of_rows_and_some_rows_lie_far_from_zero() -> None:
    x = torch.zeros(40, 50)
    fill([leaf(x)], "peaks", 0)
    ends = {int(r.argmax()) for r in x} | {int(r.argmin()) for r in x}
    assert {0, 49} <= ends and len(ends) > 10
    assert (x.amax(1) < -30).any() and (x.amin(1) > 30).any()


def test_zeros_have_either_sign_and_constants_are_the_program_s() -> None:
    x = torch.ones(50, 6)
    fill([leaf(x)], "zeros", 0)
    zeros = x[(x == 0).all(1)].signbit().sum(1)
    assert {0, 6} < set(zeros.tolist()) and 10 < len(zeros) < 40
    program = trace(lambda x: (x * 2.5 + 3).clamp(min=-0.75), torch.ones(3)).program
    assert constants(program) == (2.5, 3.0, 0.75)
    fill([leaf(x)], "constants", 0, (2.5,))
    assert set(x.unique().tolist()) <= {
        -2.5,
        -1.0,
        -0.5,
        torch.tensor(-0.4).item(),
        0.0,
        torch.tensor(0.4).item(),
        0.5,
        1.0,
        2.5,
    }


def test_rows_of_bools_are_empty_full_or_have_one() -> None:
    b = torch.zeros(50, 40, dtype=torch.bool)
    fill([leaf(b)], LIKE, 0)
    assert {0, 1, 40} <= set(b.sum(1).tolist()) and len(b.sum(1).unique()) > 5


def test_indices_are_tried_at_both_bounds_of_every_axis() -> None:
    table, index = torch.randn(9, 5), torch.randint(0, 3, (4,))
    names = index_sets([leaf(table, "table"), leaf(index, "index")])
    assert {"index 8", "index 9", "index -9", "index -10"} <= set(names)
    fill([leaf(table, "table"), leaf(index, "index")], "index -9", 0)
    assert index[-1] == -9 and (index[:-1] >= 0).all()
    assert index_sets([leaf(table)]) == ()


def test_equal_values_are_equal_often_and_subnormal_ones_are_subnormal() -> None:
    x, y = torch.ones(40, 50), torch.ones(40, 50)
    fill([leaf(x), leaf(y, "y")], "equal values", 0)
    assert 0.05 < float((x == y).double().mean()) < 0.5 and (x - y == 0).any()
    fill([leaf(x)], "subnormal", 0)
    assert (x.abs() < torch.finfo(torch.float32).smallest_normal).double().mean() > 0.5


def test_one_value_is_that_of_a_row_or_of_all() -> None:
    x = torch.ones(40, 50)
    drawn: set[tuple[int, int]] = set()
    for seed in range(8):
        fill([leaf(x)], "one value", seed)
        drawn.add((len(x[0].unique()), len(x.unique())))
    assert drawn == {(1, 1), (1, 40)}


def test_weights_beside_data_get_ordinary_values() -> None:
    x, w = torch.randn(12, 20), torch.ones(20)
    fill([leaf(x), leaf(w, "w")], "special values", 0)
    assert w.isfinite().all() and not x.isfinite().all()


def test_shared_memory_and_strides_stay() -> None:
    base = torch.zeros(10, 10)
    a, b = base.t()[2:], base.expand(3, 10, 10)
    fill([leaf(a, "a"), leaf(b, "b")], LIKE, 0)
    assert a.stride() == (1, 10) and b.stride() == (0, 10, 1)
    assert torch.equal(a, b[1].t()[2:]) and base.abs().sum() > 0


def test_special_sets_need_floating_data() -> None:
    assert floats([leaf(torch.ones(2))])
    assert not floats([leaf(torch.ones(2, dtype=torch.int64)), leaf(torch.ones(2), "w", "param")])
    assert GIVEN not in SPECIAL_SETS


def test_boundary_variants_keep_shapes_in_agreement() -> None:
    x, w = torch.randn(6, 40), torch.randn(40)
    seen = {}
    for label, (a, b, k) in boundary_variants((x, w, 3)):
        assert a.shape[-1] == b.shape[-1] and k == 3
        seen[label] = a
    assert {f"last axis {n}" for n in (0, *BOUNDARY_SIZES)} <= seen.keys() and "first axis 1" in seen
    assert seen["transposed"].stride() == (1, 6) and seen["every second element"].stride() == (81, 2)
    assert seen["expanded rows"].stride() == (0, 1) and seen["transposed"].shape == x.shape


def test_a_function_is_verified_at_every_size_that_eager_takes() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x * w).relu()

    def forgets_the_tail(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = fn(x, w)
        y[..., x.shape[-1] // 16 * 16 :] += 1
        return y

    args = (torch.randn(4, 40), torch.randn(40))
    right = verify_shapes(lambda a, k: (fn, trace(fn, *a, **k)), fn, args[:1], {"w": args[1]})
    assert all(c.ok for c in right) and len(right) > 10
    wrong = {c.variant: c.ok for c in verify_shapes(lambda a, _: (forgets_the_tail, trace(fn, *a)), fn, args)}
    assert not wrong["last axis 17"] and wrong["last axis 16"]


def test_sizes_that_eager_refuses_are_listed() -> None:
    linear = torch.nn.Linear(40, 3)
    found = verify_shapes(lambda a, _: (linear, trace(linear, *a)), linear, (torch.randn(4, 40),))
    refused = {c.variant: c.refused for c in found if c.refused}
    assert "last axis 17" in refused and "mat1 and mat2" in refused["last axis 17"]
    assert any(c.result and c.result.ok for c in found)


def test_every_edge_of_a_row_is_a_nan_in_some_draw() -> None:
    for shape in ((37,), (5, 37)):
        x = leaf(torch.randn(shape))
        seen: set[int] = set()
        for draw in range(4):
            fill([x], "nan at edges", 1000 * draw, draw=draw)
            seen.update(x.value.isnan().nonzero()[:, -1].tolist())
        assert seen == {0, 31, 32, 36}


def test_state_has_its_turn_at_the_edges_and_below_the_normal_numbers() -> None:
    x, w = leaf(torch.randn(5, 37)), leaf(torch.randn(37), "w", "param")
    fill([x, w], "inf at edges", 0, draw=4)
    assert x.value.isfinite().all() and w.value.isinf().sum() == 1
    assert state_sets([x, w]) == (SMALL_STATE,) and state_sets([x]) == ()
    fill([x, w], SMALL_STATE, 0)
    tiny = torch.finfo(torch.float32).smallest_normal
    assert (w.value.abs() < tiny).any() and (x.value.abs() > tiny).all()


def test_sums_vanish_and_products_are_subnormal() -> None:
    x, w = leaf(torch.randn(256).bfloat16()), leaf(torch.randn(256).bfloat16(), "w")
    fill([x, w], "tiny beside large", 0)
    assert ((x.value + w.value == x.value) & (w.value != 0)).any()
    fill([x, w], "small products", 0)
    product = x.value.double() * w.value.double()
    assert (product.abs() < torch.finfo(torch.bfloat16).smallest_normal).any() and (x.value != 0).all()


def test_only_integers_that_arithmetic_reads_are_drawn_over_their_type() -> None:
    def fn(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor, t: torch.Tensor) -> object:
        return (a + b).view(-1) // 2, x[t + 1]

    args = (*(torch.arange(64, dtype=torch.int32) for _ in "ab"), torch.randn(9), torch.tensor([1, 2]))
    leaves = bind(trace(fn, *args), args)
    assert [i.free for i in leaves] == [True, True, False, False]
    fill(leaves, FULL_RANGE, 0)
    drawn = leaves[0].value.to(torch.int64)
    assert drawn.abs().max() > 2**31 - 4 and (drawn.abs() > 2**24).any() and not (drawn == 0).any()
    assert leaves[3].value.min() >= 1 and leaves[3].value.max() <= 2


def test_products_overflow_and_bit_patterns_span_the_type_for_state_too() -> None:
    x, w = leaf(torch.randn(40, 50)), leaf(torch.randn(50), "w", "param")
    fill([x, w], "large products", 0)
    finite = x.value.square().isfinite()
    assert (
        finite.any() and not finite.all() and x.value.isfinite().all() and w.value.square().isfinite().all()
    )
    fill([x, w], "bit patterns", 0)
    for t in (x.value, w.value):
        drawn = t[t.isfinite() & (t != 0)].abs()
        assert drawn.min() < 1e-20 and drawn.max() > 1e20
    x, w = leaf(torch.randn(40, 50)), leaf(torch.randn(50), "w", "param")
    fill([x, w], "few numbers", 0)
    assert (w.value == 0).any() and len(x.value.unique()) < 20 and (x.value + w.value == 0).any()


def test_one_tensor_after_the_other_has_one_magnitude_that_the_others_leave_exact() -> None:
    leaves = [leaf(torch.randn(8, 50)), leaf(torch.randn(50), "w", "param")]
    for draw in range(4):
        fill(leaves, "one magnitude", draw, draw=draw)
        one, other = (leaves[draw % 2].value, leaves[1 - draw % 2].value)
        assert len(one.abs().unique()) == 2 and (one == 0).any() and 1.5 <= one.abs().max() < 1.75
        assert torch.equal(other.abs().log2(), other.abs().log2().round()) and other.abs().max() < 2**-10
        assert torch.equal((one[..., :50] + other).double(), one[..., :50].double() + other.double())
