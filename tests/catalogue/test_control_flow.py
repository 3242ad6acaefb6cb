"""Branches and loops: kernels inside them, numbers and kinds as eager's, whichever way the values go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.catalogue.harness import PLANNED_FOR, call, check, compare, rand

from fusebound.capture.saved import captured_from_graph
from fusebound.capture.torch import Captured, capture
from fusebound.engine.build import build
from fusebound.engine.compile import Options, compile
from fusebound.errors import CaptureError, UsageError
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.runtime.executable import Executable
from fusebound.target import get
from fusebound.verify.check import verify

LAYER = torch.nn.Linear(33, 33)


def up(x: torch.Tensor) -> torch.Tensor:
    return (x * 2 + 1).exp()


def down(x: torch.Tensor) -> torch.Tensor:
    return (x - 1).relu() * 3


def choose(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, up, down, (x,)) + 1


def nested(x: torch.Tensor) -> torch.Tensor:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.amax() > 5, up, down, (x,))

    return torch.cond(x.sum() > 0, inner, down, (x,))


def repeat(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    def test(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return i < 4

    def body(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, torch.cond(
            x.sum() > 0, lambda x: (x * 0.5 - 1).tanh(), lambda x: (x + 1).abs() * 2, (x,)
        )

    return torch.while_loop(test, body, (torch.tensor(0), x))


def built(fn: Callable[..., Any], *args: Any) -> tuple[Executable, Captured]:
    captured, target = capture(fn, args), get(PLANNED_FOR)
    made = plan(captured.graph, target=target, expected_calls=10**9)
    return build(made, captured, target=target), captured


def groups(made: Plan) -> dict[str, tuple[str, ...]]:
    return {g.id: g.users for g in made.kernels}


@pytest.mark.parametrize("sign", [1, -1])
def test_either_branch(sign: int) -> None:
    x = sign * rand(17, 33).abs()
    f = check(choose, x, refused="F603", kernels=3)
    assert f.plan is not None
    assert groups(f.plan) == {
        "g0": ("sum_1", "gt"), "cond.true/g0": ("mul", "add", "exp"), "cond.false/g0": ("sub", "relu", "mul"),
    }  # fmt: skip
    assert f.executable is not None and f.executable.entered == {"cond.true" if sign > 0 else "cond.false"}


@pytest.mark.parametrize("x", [rand(9, 33).abs(), rand(9, 33).abs() + 5, -rand(9, 33).abs()])
def test_a_branch_inside_a_branch(x: torch.Tensor) -> None:
    f = check(nested, x, refused="F603", kernels=5)
    assert f.plan is not None
    assert [p for p, _ in f.plan.everywhere()] == [
        "", "cond.true/", "cond.true/cond.true/", "cond.true/cond.false/", "cond.false/",
    ]  # fmt: skip


@pytest.mark.parametrize("x", [rand(9, 33), rand(9, 33).abs() + 2])
def test_a_branch_inside_a_loop(x: torch.Tensor) -> None:
    check(repeat, x, refused="F603", kernels=3)


def test_a_loop_that_runs_no_round_returns_copies() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.while_loop(lambda x: x.sum() > 1e9, lambda x: ((x * 2).tanh() + 1,), (x,))[0]

    exe, captured = built(f, rand(9, 33))
    x = rand(9, 33)
    out = exe(x)
    assert torch.equal(out, x) and out.data_ptr() != x.data_ptr()
    compare(captured, (x,), call(exe, (x,)))


def test_a_loop_over_a_python_number_and_a_tensor_from_outside() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[int, torch.Tensor]:
        return torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, (x * 0.5 + y).relu()), (0, x))

    exe, captured = built(f, rand(9, 33), rand(9, 33, seed=1))
    assert list(groups(exe.plan).values()) == [("mul", "add_1", "relu")]
    compare(captured, (x := rand(9, 33), y := rand(9, 33, seed=1)), call(exe, (x, y)))


def test_parameters_constants_and_writes_inside_branches() -> None:
    def yes(x: torch.Tensor) -> torch.Tensor:
        y = LAYER(x).clone()
        y.mul_(2).add_(0.5)
        y[0] = 3
        return y

    def no(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * torch.tensor(0.1), -1)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, yes, no, (x,))

    for x in (rand(9, 33).abs(), -rand(9, 33).abs()):
        exe, captured = built(f, x)
        compare(captured, (x,), call(exe, (x,)))


@pytest.mark.parametrize(
    "branch, said",
    [
        (lambda x: x.mul_(2), "writes into x"),
        (lambda x: x[0].add_(1).sum() + x, "writes into x"),
        (lambda x: x.view(33, 9).view(9, 33), "returns x"),
        (lambda x: x * torch.arange(33.0).clone() * torch.tensor([2.0] * 33), "constant tensor of shape [33]"),
        (lambda x: x.double(), "expected same dtype"),
    ],
)  # fmt: skip
def test_what_no_graph_holds_is_named_at_its_line(branch: Callable[..., Any], said: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, branch, lambda x: x.relu(), (x,))

    with pytest.raises(CaptureError) as e:
        capture(f, (rand(9, 33),))
    assert e.value.code == "E209"
    assert said in e.value.what
    assert Path(__file__).name in e.value.where


def test_a_branch_that_writes_runs_eagerly() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.mul_(2), lambda x: x.relu(), (x,))

    compiled = compile(f, Options(hardware=PLANNED_FOR))
    x = rand(9, 33).abs()
    with torch.no_grad(), pytest.warns(UserWarning, match="E209"):
        out = compiled(x.clone())
    assert torch.equal(out, x * 2)


def test_lines_inside_a_branch_are_the_users() -> None:
    g = capture(choose, (rand(9, 33),)).graph
    lines = {u.source.code for s in g.subgraphs.values() for u in s.user_ops}
    assert lines == {"return (x * 2 + 1).exp()", "return (x - 1).relu() * 3"}
    assert g.user["cond"].source.code == "return torch.cond(x.sum() > 0, up, down, (x,)) + 1"


def test_a_plan_with_branches_reads_back(tmp_path: Path) -> None:
    exe, captured = built(repeat, rand(9, 33))
    exe.plan.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json", captured.graph)
    assert again == exe.plan
    rebuilt = build(again, captured, target=get(PLANNED_FOR))
    compare(captured, (x := rand(9, 33),), call(rebuilt, (x,)))


def test_a_plan_with_branches_is_enough_to_run_and_verify() -> None:
    exe, _ = built(nested, rand(9, 33))
    loaded = captured_from_graph(exe.plan.graph)
    again = build(exe.plan, loaded, target=get(PLANNED_FOR))
    for x in (rand(9, 33).abs(), rand(9, 33).abs() + 5, -rand(9, 33).abs()):
        assert torch.equal(again(x), exe(x))
    assert verify(again, loaded, (rand(9, 33),), sets=("given",)).ok


def test_why_across_branches() -> None:
    made = built(nested, rand(9, 33))[0].plan
    fused = made.why("cond.true/cond.true/mul", "cond.true/cond.true/exp")
    assert fused.fused and fused.dependence.state == "pass"
    assert fused.pair.startswith("cond.true/cond.true/mul (") and " + cond.true/cond.true/exp (" in fused.pair
    outside = made.why("sum_1", "cond.false/sub")
    assert outside.dependence.code == "F603" and outside.b.name == "cond"
    apart = made.why("cond.true/amax", "cond.false/sub")
    assert apart.dependence.code == "F603" and apart.pair.startswith("two parts of cond (")
    with pytest.raises(UsageError, match=r"cond.true/cond.true/mul, .*cond.false/mul"):
        made.why("mul", "sum_1")


def test_verify_says_which_branch_no_values_took() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.square().sum() >= 0, up, down, (x,))

    exe, captured = built(f, rand(9, 33))
    found = verify(exe, captured, (rand(9, 33),), sets=("given",))
    assert found.ok
    assert [n for n in found.notes if "ran on none" in n] == [
        f"cond.false of cond (test_control_flow.py:{f.__code__.co_firstlineno + 1}) ran on none of these values"
    ]


def test_verify_draws_until_both_branches_ran() -> None:
    exe, captured = built(choose, x := rand(9, 33))
    found = verify(exe, captured, (x,), sets=("given",))
    assert found.ok and not [n for n in found.notes if "ran on none" in n]
    assert exe.entered == {"cond.true", "cond.false"}


def test_plans_differ_inside_a_branch() -> None:
    captured, target = capture(choose, (rand(9, 33),)), get(PLANNED_FOR)
    fused = plan(captured.graph, target=target, expected_calls=10**9)
    apart = plan(captured.graph, target=target, policy="none")
    found = fused.diff(apart)
    assert ("cond.true/mul", "cond.true/add", "cond.true/exp") in found.only_left
    assert ("cond.true/mul",) in found.only_right
