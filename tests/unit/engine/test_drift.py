"""`fb.compile(check=)`: a share of the calls is run both ways, and nobody notices but the report."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.faults import forgotten_tail, wrong_operator

import fusebound as fb
from fusebound.engine import drift
from fusebound.engine.compile import Options
from fusebound.engine.sampled import DriftWarning, SampledFunction
from fusebound.errors import UsageError

torch.manual_seed(0)
X = torch.randn(12, 43)


def sampled(fn: Callable[..., Any], check: float = 1.0) -> SampledFunction:
    options = Options(contest=False, expected_calls=10**9, hardware="cpu-avx512")
    return SampledFunction(fn, options, check)


def softmax(x):
    return F.softmax(x * 2, -1)


PLACE = f"test_drift.py:{softmax.__code__.co_firstlineno + 1}"


def test_every_call_of_a_right_function() -> None:
    f = sampled(softmax)
    for _ in range(3):
        assert torch.allclose(f(X), softmax(X))
    report = f.report
    (out,) = report.outputs
    assert (report.calls, report.sampled, report.ok, report.faults) == (3, 3, True, ())
    assert out.where.startswith("softmax (") and out.where.endswith(f"{PLACE})")
    assert out.equal + out.rounding + out.judged == 3 and 0 < out.largest < 1e-6


def test_a_share_of_the_calls() -> None:
    f = sampled(softmax, 0.25)
    for _ in range(9):
        f(X)
    assert (f.report.calls, f.report.sampled) == (9, 2)


def test_a_report_reads_as_text() -> None:
    out = drift.OutputDrift(
        "output 0", "softmax (a.py:3)", 1, 1, 1, 0.25, 1234.5, "worse", "rms 3 times eager's"
    )
    assert str(drift.Drift(8, 3, (out,), ("another shape",))).splitlines() == [
        "8 calls, 3 of them also run eagerly",
        "output 0 of softmax (a.py:3): 1 equal, 1 within rounding, 1 judged: worse (rms 3 times eager's); "
        "largest difference 2.5e-01, 1.23e+03 ULP",
        "another shape",
    ]


def test_wrong_numbers_are_warned_of_once_with_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten_tail(monkeypatch)
    f = sampled(softmax)
    with pytest.warns(
        DriftWarning, match=f"softmax differs from eager: output 0 of softmax .*{PLACE}"
    ) as said:
        y = f(X)
    assert [w.filename for w in said] == [__file__]  # at the user's call
    assert not torch.allclose(y, softmax(X))  # a sampled call returns what any other call would
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(X)
    (out,) = f.report.outputs
    assert not f.report.ok and out.verdict == "worse" and out.judged == 2 and out.largest_ulps > 1e3


def test_a_few_numbers_far_off_are_no_luck(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rounding moves them so far."""
    wrong_operator(monkeypatch, "add")
    f = sampled(lambda x: (x * 3 + 1)[:1, :5].contiguous())
    with pytest.warns(DriftWarning):
        f(X)
    assert not f.report.ok


def in_place(x, y):
    x.mul_(2).add_(y)
    return x.exp()


def test_inputs_are_changed_once_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = X.clone(), torch.ones_like(X)
    f = sampled(in_place)
    f(x, y)
    assert torch.equal(x, X * 2 + 1)
    assert [o.output for o in f.report.outputs] == ["output 0", "user input 'x' (mutated)"] and f.report.ok
    wrong_operator(monkeypatch, "add")
    g = sampled(in_place)
    with pytest.warns(DriftWarning):
        g(X.clone(), y)
    assert {o.output for o in g.report.outputs if not o.ok} >= {"user input 'x' (mutated)"}


def test_state_of_a_module_moves_once() -> None:
    norm = torch.nn.BatchNorm1d(43).requires_grad_(False)
    twin = torch.nn.BatchNorm1d(43).requires_grad_(False)
    f = sampled(norm)
    for _ in range(2):
        f(X), twin(X)
    assert int(norm.num_batches_tracked) == 2
    assert torch.allclose(norm.running_mean, twin.running_mean)
    assert f.report.ok, f.report


def noisy(x):
    return F.dropout(x, 0.5) * 2 + torch.rand_like(x)


def test_the_same_random_numbers_and_the_generator_moves_as_ever() -> None:
    f, plain = sampled(noisy), sampled(noisy, 0.01)
    outs = []
    for g in (plain, f):
        torch.manual_seed(3)
        outs += [g(X), torch.rand(3)]
    assert torch.equal(outs[0], outs[2]) and torch.equal(outs[1], outs[3])
    assert f.report.ok and f.report.sampled == (1 if f.executable else 0), f.report


def picks(x, i):
    return x[i].exp() + 1


def test_exceptions_are_the_caller_s() -> None:
    f = sampled(picks)
    f(X, torch.tensor([0, 3]))
    with pytest.raises(IndexError):
        f(X, torch.tensor([0, 99]))
    assert f.report.sampled == 2 and f.report.ok


def test_an_exception_that_eager_does_not_raise_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    f = sampled(softmax)
    f(X)
    exe = f.executable
    assert exe is not None

    def broken(*args: Any) -> Any:
        raise ValueError("no")

    monkeypatch.setattr(exe, "run", broken)
    monkeypatch.setattr(f, "_routes", [])
    with pytest.warns(DriftWarning, match="raises ValueError"), pytest.raises(ValueError, match="no"):
        f(X)
    assert f.report.faults and not f.report.ok


def test_a_comparison_that_fails_is_no_failure_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("no memory for the copies")

    monkeypatch.setattr(drift.Twin, "_enter", broken)
    f = sampled(softmax)
    with pytest.warns(DriftWarning, match="no memory for the copies"):
        assert torch.allclose(f(X), softmax(X))
    assert not f.report.ok


def test_what_runs_eagerly_is_not_sampled() -> None:
    f = sampled(lambda x: x + 1 if x.sum() > 0 else x - 1)
    with pytest.warns(UserWarning, match="runs eagerly"):
        f(X)
    assert (f.report.calls, f.report.sampled, f.report.ok) == (1, 0, True)


def test_the_public_function() -> None:
    f = fb.compile(softmax, check=0.5)
    assert isinstance(f, SampledFunction) and isinstance(pickle.loads(pickle.dumps(f)), SampledFunction)
    for bad in (0, -1, 1.5, float("nan")):
        with pytest.raises(UsageError, match="no share"):
            fb.compile(softmax, check=bad)


def test_a_report_says_why_nothing_was_compared() -> None:
    f = SampledFunction(softmax, Options(policy="none", contest=False), 1.0)
    assert str(f.report) == "0 calls, 0 of them also run eagerly"
    f(X)
    assert str(f.report) == "1 call, none compared with eager: policy none fuses nothing"
    g = sampled(softmax, 0.25)
    g(X)
    assert str(g.report) == "1 call, none compared with eager: one call in 4 is compared"
