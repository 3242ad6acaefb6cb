"""`plan`, `executable` and `reason` of a compiled function are those of the latest call, whatever ran it."""

from __future__ import annotations

import warnings

import pytest
import torch

import fusebound as fb
from fusebound.engine import compile as engine
from fusebound.engine.compile import CompiledFunction, EagerNotice, Options

OPTIONS = Options(expected_calls=10**9, contest=False)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2)


def state(f: CompiledFunction) -> tuple[bool, bool, str]:
    return f.plan is not None, f.executable is not None, f.reason


def test_calls_in_turn_with_and_without_gradients() -> None:
    f = engine.compile(scaled, OPTIONS)
    plain, leaf = torch.randn(64, 100), torch.randn(64, 100, requires_grad=True)
    for _ in range(2):
        f(plain)
        assert state(f) == (True, True, "")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EagerNotice)
            f(leaf)
        assert state(f) == (False, False, engine.GRADIENTS)
        assert "eager, gradients are recorded" in repr(f)
        with torch.no_grad():
            f(leaf)
        assert state(f) == (True, True, "")


def test_calls_under_a_mode_and_of_an_exotic_tensor() -> None:
    f = engine.compile(scaled, OPTIONS)
    x = torch.randn(64, 100)
    f(x)
    with torch.autocast("cpu"), pytest.warns(EagerNotice) as said:
        f(x)
    assert said[0].filename == __file__
    assert state(f) == (False, False, "a dispatch mode, autocast or a transform is active")
    f(x)
    with pytest.warns(EagerNotice):
        f(x.to_sparse())
    assert f.plan is None and "not a plain CPU tensor" in f.reason


def test_policy_none_is_no_measurement() -> None:
    f = engine.compile(scaled, Options(policy="none", contest=False))
    f(torch.ones(3))
    assert state(f) == (False, False, "policy none fuses nothing")


def test_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FB_DISABLE", "1")
    f = fb.compile(scaled)
    f(torch.ones(3))
    assert state(f) == (False, False, "FB_DISABLE is set")


def test_gradients_where_eager_had_been_chosen() -> None:
    f = engine.compile(scaled, Options(policy="none", contest=False))
    f(torch.ones(3))
    f(torch.ones(3, requires_grad=True))
    assert f.reason == engine.GRADIENTS
    with torch.no_grad():
        f(torch.ones(3, requires_grad=True))
    assert f.reason == engine.UNFUSED
