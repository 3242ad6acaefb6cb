"""Medians, intervals and warnings from made-up samples: no clock involved."""

from __future__ import annotations

import pytest

from fusebound.measure.statistics import Samples, geometric_mean, quantile, ratio


def test_quantiles_interpolate() -> None:
    assert quantile([4, 1, 3, 2], 0.5) == 2.5 and quantile([1, 2, 3], 0) == 1 and quantile([1, 2, 3], 1) == 3
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_median_spread_and_best() -> None:
    s = Samples("a", (10.0, 12.0, 11.0, 9.0, 50.0))
    assert s.median == 11.0 and s.iqr == 2.0 and s.spread == pytest.approx(2 / 11) and s.best < 10


def test_drift_of_the_machine_cancels_in_a_ratio() -> None:
    drift = (1.0, 2.0, 4.0, 3.0, 1.5)
    a = Samples("a", tuple(20 * d for d in drift))
    b = Samples("b", tuple(10 * d for d in drift))
    r = ratio(a, b)
    assert r.value == r.low == r.high == 2.0 and r.rounds == 5 and str(r).startswith("2.00x")


def test_the_interval_is_as_wide_as_the_doubt_and_repeats() -> None:
    a = Samples("a", tuple(float(10 + i % 5) for i in range(30)))
    b = Samples("b", tuple(float(10 + (i * 3) % 5) for i in range(30)))
    assert ratio(a, b) == ratio(a, b)
    assert ratio(a, b).low < ratio(a, b).value < ratio(a, b).high


def test_samples_of_two_runs_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different runs"):
        ratio(Samples("a", (1.0,)), Samples("b", (1.0, 2.0)))


def test_doubtful_samples_are_said_to_be() -> None:
    steady = tuple(10.0 + 0.01 * (i % 3) for i in range(20))
    assert Samples("a", steady).warnings == ()
    assert any("far above" in w for w in Samples("a", (*steady, 30.0)).warnings)
    assert any("spread" in w for w in Samples("a", tuple(float(i + 1) for i in range(9))).warnings)
    assert any("rounds" in w for w in Samples("a", (1.0, 1.0)).warnings)


def test_geometric_mean() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
