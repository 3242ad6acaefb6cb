"""A τ of a rule holds for the outputs of its kernels, the plan's for all others."""

from __future__ import annotations

import torch

import fusebound as fb


def two(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tanh(x * 3) * 0.3, torch.exp(y * 0.7) * 0.3


def halves() -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 64, 257, generator=g).bfloat16()
    return x.clone(), y.clone()


def verdicts(rules: dict[str, object] | None) -> dict[str, str]:
    x, y = halves()
    plan = fb.plan(
        fb.capture(two, x, y), hardware="cpu-avx512", expected_calls=10**9, rules=rules, policy="tile"
    )
    report = fb.verify(fb.build(plan), x, y)
    assert report.ok
    return {c.output: c.verdict for c in report.errors if c.set == "given"}


def test_a_rule_on_one_kernel_judges_its_output_only() -> None:
    without = verdicts(None)
    assert "within τ" not in without.values()
    ruled = verdicts({"tau": [{"operators": ["tanh"], "relative": 0.5}], "forbid": [["tanh", "exp"]]})
    assert ruled == {"output 0": "within τ", "output 1": without["output 1"]}


def test_an_input_that_is_written_is_held_too() -> None:
    def update(p: torch.Tensor, g: torch.Tensor) -> None:
        p.mul_(0.9).add_(torch.tanh(g) * 0.3)

    x, y = halves()
    rules = {"tau": [{"operators": ["tanh*"], "absolute": 10.0}]}
    plan = fb.plan(fb.capture(update, x, y), hardware="cpu-avx512", expected_calls=10**9, rules=rules)
    report = fb.verify(fb.build(plan), x, y)
    assert report.ok
    assert {c.verdict for c in report.errors if c.set == "given"} == {"within τ"}
