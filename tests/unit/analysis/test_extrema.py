"""Maxima and minima of the simulation."""

from __future__ import annotations

import numpy as np

from fusebound.analysis.extrema import maximum, minimum


def test_truth_values_have_no_signed_zeros() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert minimum(a, b).tolist() == [False, False, False, True]
    assert maximum(a, b).tolist() == [False, True, True, True]


def test_zeros_are_ordered_by_sign() -> None:
    a, b = np.array([0.0, -0.0, -0.0]), np.array([-0.0, 0.0, -0.0])
    assert np.signbit(minimum(a, b)).tolist() == [True, True, True]
    assert np.signbit(maximum(a, b)).tolist() == [False, False, True]
