"""What each group stores, in the running plan, against eager and float64; and in which group an error arises."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tests.faults import wrong_operator

from fusebound.capture.torch import Captured, capture
from fusebound.engine.build import build
from fusebound.plan.greedy import plan
from fusebound.runtime.executable import Executable
from fusebound.target import get
from fusebound.verify.check import verify
from fusebound.verify.inputs import GIVEN, PLAIN

torch.manual_seed(0)
X, W = torch.randn(24, 40), torch.randn(40, 40)


def three_kernels(x, w):
    a = F.softmax(x * 2, -1) @ w
    b = torch.erf(a + 1).mul(3) @ w
    return (b * 2).tanh() + 1


def built(fn, *args) -> tuple[Executable, Captured]:
    captured = capture(fn, args)
    made = plan(captured.graph, target=get("cpu-avx512"), expected_calls=10**9)
    return build(made, captured), captured


def test_every_kernel_has_its_values() -> None:
    exe, captured = built(three_kernels, X, W)
    found = verify(exe, captured, (X, W), sets=PLAIN)
    assert found.ok and found.origin is None, found.summary()
    kernels = [g.id for g in exe.plan.kernels]
    assert [(c.group, c.set) for c in found.groups] == [(g, s) for s in PLAIN for g in kernels]
    assert len(kernels) == 3 and all(c.ok and c.fused.rms > 0 for c in found.groups)


def test_the_group_in_which_an_error_arises(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_operator(monkeypatch, "erf")
    exe, captured = built(three_kernels, X, W)
    found = verify(exe, captured, (X, W), sets=(GIVEN,))
    first, second, third = found.groups
    assert not found.ok and first.ok and not second.ok
    assert found.origin == second
    # The third computes rightly from what the second has stored: its own values are wrong all the same.
    assert third.apart.max > 0


def in_place(x, w):
    x.mul_(2).add_(1)
    return torch.erf(x @ w) * 3


def test_a_value_written_over_an_input_is_seen_before_it_is_overwritten() -> None:
    exe, captured = built(in_place, X.clone(), W)
    found = verify(exe, captured, (X.clone(), W), sets=(GIVEN,))
    assert found.ok and all(c.ok for c in found.groups) and len(found.groups) >= 2, found.groups


def test_what_has_no_plan_has_no_groups() -> None:
    captured = capture(three_kernels, (X, W))
    found = verify(three_kernels, captured, (X, W), sets=(GIVEN,))
    assert found.groups == () and not any("each kernel stores" in note for note in found.notes)


def test_why_what_kernels_store_is_not_compared_is_noted() -> None:
    exe, captured = built(lambda x: F.dropout(x, 0.5).mul(2).exp(), X)
    found = verify(exe, captured, (X,), sets=(GIVEN,))
    assert found.groups == () and any("random numbers are not eager's" in note for note in found.notes)
