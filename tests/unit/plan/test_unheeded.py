"""Rules that come to nothing are told of: by the plan, and by `fb.compile` once."""

from __future__ import annotations

import warnings

import torch
from tests.unit.plan.graphs import chain, triangle

from fusebound.engine import compile as engine
from fusebound.engine.compile import Options
from fusebound.gates.rules import RuleNotice, Rules
from fusebound.ir.graph import Graph
from fusebound.plan.greedy import plan
from fusebound.plan.unheeded import unheeded
from fusebound.target import get

TARGET = get("cpu-avx512")


def said(g: Graph, rules: Rules, policy: str = "tile") -> list[str]:
    made = plan(g, target=TARGET, policy=policy, rules=rules, expected_calls=10**6)
    return list(unheeded(made, TARGET))


def test_a_demand_that_cannot_be_met_names_the_obstacle() -> None:
    (text,) = said(triangle(), Rules(require=(("exp", "add"),)))
    assert text.startswith("a rule demands exp (") and "that cannot be: F101" in text and "→ sort (" in text


def test_what_is_met_is_silent_and_what_is_unknown_is_not() -> None:
    assert said(chain(), Rules(require=(("add", "tanh"),), forbid=(("add", "add"),))) == []
    (text,) = said(chain(), Rules(require=(("add", "tan"),)))
    assert "is called 'tan', which the rules name" in text


def test_a_policy_that_merges_nothing() -> None:
    (text,) = said(chain(), Rules(require=(("add", "mul"),)), policy="none")
    assert text.endswith("the policy merges nothing that would join them")


def test_compile_warns_once() -> None:
    rules = Rules(forbid=(("softmx", "mul"),))
    f = engine.compile(lambda x: torch.relu(x * 2), Options(rules=rules, contest=False, expected_calls=10**9))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", RuleNotice)
        for rows in (3, 3, 4):
            f(torch.ones(rows, 100))
    (notice,) = [w for w in heard if w.category is RuleNotice]
    assert "'softmx'" in str(notice.message) and notice.filename == __file__
