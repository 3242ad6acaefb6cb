"""The rule of docs/gates.md on made-up errors, and ULPs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fusebound.analysis.simulate import _facts
from fusebound.verify.bits import ulp
from fusebound.verify.classes import GAINED, NO_WORSE
from fusebound.verify.errors import Exact, measure, measure_integers, pooled
from fusebound.verify.tolerance import rule

EXACT = torch.linspace(1.0, 1.9, 4096, dtype=torch.float64)
STEP = 2.0**-23


def ruling(fused: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor = EXACT, **kwargs):
    return rule(measure(fused, eager, Exact(exact)), **kwargs)


def off(by: torch.Tensor | float) -> torch.Tensor:
    return (EXACT + by).float()


NOISE = torch.randn(4096, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1.0, torch.float32, 2.0**-23),
        (1.99, torch.float32, 2.0**-23),
        (-2.0, torch.float32, 2.0**-22),
        (0.0, torch.float32, 2.0**-149),
        (1e-40, torch.float32, 2.0**-149),
        (1.0, torch.bfloat16, 2.0**-7),
        (1.0, torch.float16, 2.0**-10),
        (1.0, torch.float64, 2.0**-52),
        (1e300, torch.float32, 2.0**104),
    ],
)
def test_ulp(value: float, dtype: torch.dtype, expected: float) -> None:
    assert ulp(torch.tensor([value], dtype=torch.float64), dtype).item() == expected


def test_equal_bits_are_equal() -> None:
    assert ruling(EXACT.float(), EXACT.float()).verdict == "equal"


def test_within_two_ulp_of_the_truth_is_fine_however_good_eager_is() -> None:
    assert ruling(off(1.5 * STEP), EXACT.float()).verdict == "as eager"
    assert ruling(off(3 * STEP), EXACT.float()).verdict == "worse"


def test_a_quarter_more_than_eager_is_fine() -> None:
    eager = off(100 * STEP * NOISE)
    assert ruling(off(-120 * STEP * NOISE), eager).verdict == "as eager"
    assert ruling(off(-135 * STEP * NOISE), eager).verdict == "worse"
    assert ruling(off(-60 * STEP * NOISE), eager).verdict == "nearer fp64"


def test_one_element_far_off_is_worse() -> None:
    eager = off(3 * STEP * NOISE)
    fused = eager.clone()
    fused[5] += 40 * STEP
    found = ruling(fused, eager)
    assert found.verdict == "worse" and "max error" in found.detail


def test_the_largest_error_within_4_ulp_of_itself_hides_no_other() -> None:
    """One of 3 ULP at 2^20 beside one of 128 at 1, which eager has within one."""
    exact = torch.cat([torch.full((60,), 2.0**20), torch.ones(60)]).double()
    eager, fused = exact.clone(), exact.clone()
    eager[60:] += STEP
    fused[0] += 3 * 2.0**-3
    fused[60] += 128 * STEP
    facts = _facts("y", "normal", "float32", eager.numpy(), fused.numpy(), exact.numpy(), None)
    found = ruling(fused.float(), eager.float(), exact)
    assert facts.fused_rms < facts.rms_limit and facts.excess > facts.max_limit
    assert found.verdict == "worse" and "max error" in found.detail


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("seed", range(4))
def test_the_gate_holds_what_the_verifier_holds(dtype: str, seed: int) -> None:
    """On numbers of all magnitudes with errors of some ULP, and one that is infinite in float64 alone."""
    generator = torch.Generator().manual_seed(seed)
    kind = getattr(torch, dtype)
    info = torch.finfo(kind)
    size, *noise = torch.randn(3, 512, generator=generator, dtype=torch.float64)
    exact = torch.tensor(info.max, dtype=torch.float64) ** (size / 4).clamp(max=0.9)
    eager, fused = ((exact * (1 + 2 * info.eps * x)).to(kind) for x in noise)
    exact[0], eager[0], fused[0] = 1.1 * info.max, info.max, 0.99 * info.max
    errors = measure(fused, eager, Exact(exact)).whole
    with np.errstate(over="ignore"):
        facts = _facts(
            "y", "normal", dtype, eager.double().numpy(), fused.double().numpy(), exact.numpy(), None
        )
    assert facts.excess == errors.excess > 0
    assert (facts.eager_max, facts.fused_max) == (errors.eager.largest, errors.fused.largest)
    assert facts.eager_rms == pytest.approx(errors.rms(errors.eager), rel=1e-12)
    assert facts.fused_rms == pytest.approx(errors.rms(errors.fused), rel=1e-12)


def test_a_tail_is_judged_alone() -> None:
    exact = EXACT[:4000].reshape(10, 400)
    eager = (exact + 3 * STEP * NOISE[:4000].reshape(10, 400)).float()
    fused = eager.clone()
    fused[:, -16:] += 9 * STEP
    # Over the whole output the error is still within a quarter of eager's.
    errors = measure(fused, eager, Exact(exact))
    whole = errors.whole
    assert whole.rms(whole.fused) < 1.25 * whole.rms(whole.eager)
    assert rule(errors).verdict == "worse" and rule(errors).detail.startswith("tail")


@pytest.mark.parametrize(
    ("fused", "eager", "exact", "kind", "ok"),
    [
        (math.nan, 1.0, 1.0, "finiteness lost", False),
        (math.inf, 3e38, 3e38, "finiteness lost", False),
        (-0.0, 0.0, 0.0, "signed zero", False),
        (0.0, -0.0, 0.0, NO_WORSE, True),
        (0.0, 0.0, -0.0, None, True),
        (1.0, math.nan, 1.0, GAINED, True),
        (3e38, math.inf, 3e38, GAINED, True),
        (math.inf, math.inf, 3e38, None, True),
        (-math.inf, math.inf, math.inf, "another infinity or NaN", False),
        (math.inf, math.nan, 3e38, NO_WORSE, True),
        (math.nan, math.nan, math.nan, None, True),
        (math.inf, math.nan, math.nan, "another infinity or NaN", False),
        (math.inf, math.nan, math.inf, NO_WORSE, True),
        (-math.inf, math.nan, math.inf, NO_WORSE, True),
        (0.0, math.nan, math.nan, "not finite, hidden", False),
        (math.nan, 3e38, math.nan, NO_WORSE, True),
        (0.0, 1e-40, 1e-40, "subnormal lost", False),
        (0.0, 1e-40, 3e-40, None, True),
        (0.0, 4e-45, 4e-45, None, True),
        (0.0, 1.26e-44, 7.4e-45, None, True),
        (0.0, 1.26e-44, 1.1e-44, "subnormal lost", False),
        (0.0, 2.3966e-39, 2.3967e-39, "subnormal lost", False),
        (math.inf, 3e38, math.nan, "another infinity or NaN", False),
    ],
)
def test_classes_are_the_reference_s_or_eager_s(
    fused: float, eager: float, exact: float, kind: str | None, ok: bool
) -> None:
    f, e = (torch.tensor([v, 1.0]) for v in (fused, eager))
    errors = measure(f, e, Exact(torch.tensor([exact, 1.0], dtype=torch.float64)))
    assert [(c.kind, c.count) for c in errors.changes] == ([] if kind is None else [(kind, 1)])
    found = rule(errors)
    assert found.ok is ok, found
    assert found.verdict == "class changed" or ok
    if kind == GAINED:
        assert found.verdict == "nearer fp64" and rule(errors, numerics="eager").verdict == "class changed"


@pytest.mark.parametrize(("neighbour", "kinds"), [(99, []), (101, ["subnormal lost"])])
def test_a_lost_subnormal_is_held_against_eagers_error_on_subnormals(
    neighbour: int, kinds: list[str]
) -> None:
    """Of 100 steps, where eager is right beside one of 150 that it has as `neighbour` steps."""
    step = 2.0**-149
    exact = torch.tensor([100 * step, 150 * step, 1.0, 150 * step], dtype=torch.float64)
    eager = torch.tensor([100 * step, neighbour * step, 1.25, math.nan])
    errors = measure(torch.tensor([0.0, 150 * step, 1.0, math.nan]), eager, Exact(exact))
    assert [c.kind for c in errors.changes] == kinds


def test_three_gaps_in_three_units() -> None:
    """Fused 1 ULP above, eager 2 ULP below everywhere: their distance is the sum."""
    exact = torch.full((64,), 1.5, dtype=torch.float64)
    whole = measure((exact + STEP).float(), (exact - 2 * STEP).float(), Exact(exact)).whole
    assert [whole.rms(g) for g in (whole.fused, whole.eager, whole.apart)] == [STEP, 2 * STEP, 3 * STEP]
    assert [g.largest for g in (whole.fused, whole.eager, whole.apart)] == [STEP, 2 * STEP, 3 * STEP]
    assert [g.ulps for g in (whole.fused, whole.eager, whole.apart)] == [1, 2, 3]
    assert whole.value_rms == 1.5


def test_integers_equal_eager_s_except_on_a_tie() -> None:
    eager, exact = torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4])
    assert ruling(torch.tensor([1, 2, 3]), eager, exact).verdict == "equal"
    assert ruling(torch.tensor([1, 2, 4]), eager, exact).verdict == "as eager"
    assert ruling(torch.tensor([1, 2, 5]), eager, exact).verdict == "worse"
    assert ruling(torch.tensor([0, 2, 3]), eager, exact).verdict == "worse"


def test_integers_of_moved_references_are_no_fault() -> None:
    eager, exact = torch.tensor([7, 7, 7]), torch.tensor([7, 7, 7])
    shaken = [torch.tensor([7, 6, 5]), torch.tensor([8, 7, 9])]
    for fused, wrong in (([8, 6, 2], 0), ([8, 7, 30], 0), ([9, 7, 7], 1), ([7, 5, -40], 2), ([6, 8, 60], 3)):
        found = measure_integers(torch.tensor(fused), eager, exact, shaken).changes
        assert sum(c.count for c in found) == wrong, fused
    assert not measure_integers(eager + 40, eager, exact, [exact[:1]]).changes, "another size"
    flags = [torch.tensor([True, False])] * 2
    assert measure_integers(~flags[0], *flags, []).changes


def test_eager_numerics_count_the_operators_that_may_differ() -> None:
    near = off(1 * STEP)
    assert ruling(near, EXACT.float(), numerics="eager").verdict == "worse"
    assert ruling(near, EXACT.float(), numerics="eager", transcendentals=1).verdict == "as eager"
    assert ruling(off(5 * STEP), EXACT.float(), numerics="eager", transcendentals=2).verdict == "worse"


def test_draws_of_different_sizes_are_pooled() -> None:
    """A result whose size depends on the data has a tail in some draws only."""
    large, small = (measure(t, t, Exact(t.double())) for t in (torch.randn(70), torch.randn(5)))
    for draws in ((large, small), (small, large)):
        assert {p.name: p.count for p in pooled(draws).parts} == {"all": 75, "tail": 6}


def test_draws_are_pooled() -> None:
    lucky = measure(off(3 * STEP)[:4], EXACT.float()[:4], Exact(EXACT[:4]))
    usual = measure(off(3 * STEP)[:4], off(3 * STEP)[:4], Exact(EXACT[:4]))
    assert rule(lucky).verdict == "worse" and rule(pooled([lucky, *[usual] * 7])).ok
    with pytest.raises(ValueError, match="no draws"):
        pooled([])


def test_complex_numbers_are_two_floats() -> None:
    z = torch.complex(EXACT.float(), EXACT.float())
    wrong = z.clone()
    wrong[3] += 1e-3j
    exact = torch.complex(EXACT, EXACT)
    assert ruling(z, z, exact).verdict == "equal" and ruling(wrong, z, exact).verdict == "worse"


def test_empty_outputs_are_equal() -> None:
    empty = torch.empty(0, 5)
    assert ruling(empty, empty, empty.double()).verdict == "equal"


def test_large_outputs_are_walked_in_pieces() -> None:
    exact = torch.randn(700, 1000, dtype=torch.float64)
    eager = exact.float()
    fused = eager.clone()
    fused[650, 999] = math.nan
    errors = measure(fused, eager, Exact(exact))
    (lost,) = errors.forbidden
    assert lost.kind == "finiteness lost" and lost.count == 1 and lost.example.endswith("at [650, 999]")
    assert errors.whole.count == 699_999 and not errors.equal
    assert errors.whole.value_rms == pytest.approx(float(exact.square().mean().sqrt()), rel=1e-5)


def test_what_is_finite_where_eager_is_not_has_to_be_the_reference_s_number() -> None:
    eager, exact = torch.tensor([math.inf, 1.0]), torch.tensor([100.0, 1.0], dtype=torch.float64)
    near = ruling(torch.tensor([100.0 + 2**-16, 1.0]), eager, exact)
    assert near.verdict == "nearer fp64"
    for other in (63.97, 0.0, -100.0):
        assert ruling(torch.tensor([other, 1.0]), eager, exact).verdict == "class changed"
        assert ruling(torch.tensor([other, 1.0]), eager * torch.tensor([math.nan, 1.0]), exact).ok
