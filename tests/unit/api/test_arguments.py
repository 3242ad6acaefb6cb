"""Arguments by keyword and nested ones, and graphs whose parameters are arguments: every step takes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fusebound as fb
from fusebound.errors import UsageError
from fusebound.gates.rules import RuleNotice

MANY = 10**9


def gated(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.relu(a * b) + 1


def nested(pair: list[torch.Tensor], more: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.relu(pair[0] * pair[1]) + more["c"]


def built(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return fb.build(fb.plan(fb.capture(fn, *args, **kwargs), hardware="cpu-avx512", expected_calls=MANY))


def test_keyword_arguments_are_run_verified_and_measured() -> None:
    a, b = torch.randn(64, 100), torch.randn(64, 100)
    exe = built(gated, b=b, a=a)
    torch.testing.assert_close(exe(a=a, b=b), gated(a, b))
    assert fb.verify(exe, a=a, b=b).ok
    assert fb.bench(exe, a=a, b=b, rounds=3).groups[0].measured_us


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((0,), {}, "captured with 2 arguments by position, called with 1 argument by position"),
        ((0,), {"more": 0}, "called with 1 argument by position and 'more' by keyword"),
        (([0, 0], {"d": 0}), {}, "argument [1] was a dict of 'c' at capture and is a dict of 'd' now"),
        (([0, [0, 0]], {"c": 0}), {}, "argument [0][1] was one value at capture and is a list of 2 now"),
    ],
)
def test_another_structure_is_described_in_words(args: Any, kwargs: Any, words: str) -> None:
    x = torch.randn(4, 8)
    exe = built(nested, [x, x], {"c": x})
    with pytest.raises(UsageError) as e:
        exe(*args, **kwargs)
    assert e.value.code == "E120"
    assert words in str(e.value)
    assert e.value.hint == "call it as it was captured, with 2 arguments by position, or capture it again"


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(96).eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(x)) + x


def test_a_saved_plan_of_a_module_takes_its_parameters_as_arguments(tmp_path: Path) -> None:
    torch.manual_seed(0)
    block, x = Block(), torch.randn(64, 96)
    fb.plan(fb.capture(block, x), hardware="cpu-avx512", expected_calls=MANY).save(tmp_path / "p.json")
    exe = fb.build(fb.Plan.load(tmp_path / "p.json"))
    state = {**dict(block.named_parameters()), **dict(block.named_buffers())}
    args = [state.get(i.target, x) for i in exe.plan.graph.given]
    assert len(args) == 5
    torch.testing.assert_close(exe(*args), block(x))
    assert fb.verify(exe, *args).ok


def test_a_rule_that_names_no_operator_is_told() -> None:
    graph = fb.capture(lambda x: torch.relu(x * 2), torch.ones(4))
    with pytest.warns(RuleNotice, match="'softmax'"):
        fb.plan(graph, rules={"forbid": [["mul", "softmax"]]})
