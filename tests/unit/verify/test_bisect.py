"""Bisection: the one group, the fewest operators, the smallest input, and a script that shows the fault alone."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.faults import forgotten_tail, wrong_operator, wrong_pair

from fusebound.analysis.tau import Tau
from fusebound.api.bisection import bisect_inductor, bisect_plan, by_inductor
from fusebound.api.python_model import load, place_of
from fusebound.capture.torch import capture
from fusebound.engine.build import build
from fusebound.gates.rules import NO_RULES, Bound, Rules
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.runtime.executable import Executable
from fusebound.target import get
from fusebound.verify.bisect import Culprit
from fusebound.verify.check import verify
from fusebound.verify.inputs import GIVEN, PLAIN
from fusebound.verify.reproduce import script
from fusebound.verify.smaller import fewer
from fusebound.verify.source import function_of

torch.manual_seed(0)
X, W = torch.randn(6, 43), torch.randn(43, 43)


def program(x, w):
    h = F.softmax(x * 2, -1)
    y = h @ w
    return (torch.erf(y + 1) * 3 - y).sum(-1) * 0.5, h


def culprit_of(
    fn: Callable[..., object], *args: torch.Tensor, sets: Sequence[str] = (GIVEN,)
) -> tuple[Culprit, Plan]:
    captured = capture(fn, args)
    made = plan(captured.graph, target=get("cpu-avx512"), expected_calls=10**9)
    exe = build(made, captured)
    found = verify(exe, captured, args, sets=sets)
    assert not found.ok
    culprit = bisect_plan(exe, captured, args, {}, found)
    assert culprit is not None
    return culprit, made


def exit_of(path: Path) -> object:
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(path), run_name="__main__")
    return left.value.code


def test_one_boundary_and_a_script_that_shows_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong_pair(monkeypatch, "erf", "mul")
    found, made = culprit_of(program, X, W)
    assert [u.name for u in found.operators] == ["erf", "mul_1"] and found.edges == (("erf", "mul_1"),)
    assert found.place.startswith("the boundary between erf (test_bisect.py:")
    assert found.groups == ("g2",) and [a.shape for a in found.args] == [(1, 1)]
    path = tmp_path / "repro.py"
    path.write_text(script(found, made, "accurate"))
    assert str(Path.cwd()) not in path.read_text() and str(Path.home()) not in path.read_text()
    assert exit_of(path) == 1 and "FAILED" in capsys.readouterr().out
    monkeypatch.undo()
    assert exit_of(path) == 0


STRICT = Tau(absolute=1e-12)


@pytest.mark.parametrize("by_rule", [False, True], ids=["for all", "by a rule"])
def test_the_script_holds_the_program_to_its_tau(by_rule: bool, tmp_path: Path) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x * 3).sin() * 0.7

    x = torch.randn(300)
    captured = capture(fn, (x,))
    rules = Rules(tau=(Bound(("sin",), STRICT),)) if by_rule else NO_RULES
    tau = None if by_rule else STRICT
    made = plan(captured.graph, target=get("cpu-avx512"), expected_calls=10**9, tau=tau, rules=rules)
    assert any(g.is_kernel for g in made.groups)
    exe = build(made, captured)
    found = verify(exe, captured, (x,), sets=(GIVEN,), tau=tau)
    assert not found.ok
    culprit = bisect_plan(exe, captured, (x,), {}, found)
    assert culprit is not None and [u.name for u in culprit.operators] == ["sin"]
    path = tmp_path / "repro.py"
    path.write_text(script(culprit, made, "accurate"))
    assert exit_of(path) == 1


CUSTOM = """
import torch
import fusebound


@torch.library.custom_op("bisected::gate", mutates_args=())
def gate(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x)


gate.register_fake(torch.empty_like)
fusebound.register_op("bisected::gate", "pointwise", lower=lambda c, x: c("tanh", x))


def model(x):
    return gate(x * 2) + 1
"""


def test_the_script_of_a_custom_operator_loads_what_registers_it(tmp_path: Path) -> None:
    program, path = tmp_path / "program.py", tmp_path / "repro.py"
    program.write_text(CUSTOM)
    place = place_of(f"{program}:model")
    found, made = culprit_of(load(place).model, X)
    assert [u.name for u in found.operators] == ["gate"]
    path.write_text(script(found, made, "accurate", place))
    ran = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (1, "") and "FAILED" in ran.stdout


def test_one_operator_and_the_length_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten_tail(monkeypatch)
    found, _ = culprit_of(program, X, W)
    assert [u.name for u in found.operators] == ["softmax"] and found.edges == ()
    (x,) = found.args
    assert x.shape[0] == 1 and x.shape[1] in (1, 2, 3, 5, 9, 17)
    assert not found.found.ok


def updated(x, w):
    y = torch.erf(x) * 2
    x.add_(1).mul_(w)
    return y + x


def test_a_fault_of_the_run_is_shown_by_the_whole_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A mutation that is never written back: every kernel is right alone."""
    right = Executable._finish

    def forgetful(self, env):
        self._copies = []
        return right(self, env)

    monkeypatch.setattr(Executable, "_finish", forgetful)
    monkeypatch.setattr("fusebound.runtime.executable.written_directly", lambda *args: {})
    found, made = culprit_of(updated, X.clone(), W[:6])
    assert found.whole and "(mutated)" in found.found.failures[0].output
    path = tmp_path / "repro.py"
    path.write_text(script(found, made, "accurate"))
    assert "x.copy_(" in path.read_text() and exit_of(path) == 1
    monkeypatch.undo()
    assert exit_of(path) == 0


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(43) + 0.5)

    def forward(self, x):
        return F.softmax(x * self.scale, -1) + 1


def test_a_fault_that_only_large_values_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Softmax without its maximum is right on the given values; parameters are drawn anew, and put back."""
    wrong_operator(monkeypatch, "sub")
    module = Attention().requires_grad_(False)
    before = module.scale.clone()
    found, _ = culprit_of(module, X, sets=(GIVEN, "large mean"))
    assert found.set == "large mean" and [u.name for u in found.operators] == ["softmax"]
    assert found.found.failures[0].verdict == "class changed" and found.args[0].numel() == 1
    assert torch.equal(module.scale, before)


def test_a_right_program_has_no_culprit(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        wrong_operator(patch, "erf")
        captured = capture(program, (X, W))
        exe = build(plan(captured.graph, target=get("cpu-avx512"), expected_calls=10**9), captured)
        found = verify(exe, captured, (X, W), sets=(GIVEN,))
    assert not found.ok and bisect_plan(exe, captured, (X, W), {}, found) is None


@pytest.mark.parametrize("needed", [{3}, {0, 7}, {2, 3, 5}, set(range(8))])
def test_no_item_can_be_left_out(needed: set[int]) -> None:
    asked: list[tuple[int, ...]] = []

    def fails(some) -> bool:
        asked.append(tuple(some))
        return needed <= set(some)

    assert set(fewer(range(8), fails)) == needed
    assert len(asked) <= 64


def many_forms(x, i):
    values, places = x.topk(3, dim=-1)
    low = x.amin(-1, keepdim=True).clamp(min=-float("inf"))
    y = torch.cat([values, low.expand(-1, 2)], 1).to(torch.float64)
    return y[:, i], places, x.max(-1)[1], torch.full_like(y, 2.5, dtype=torch.bfloat16)


def test_operators_as_text_are_the_same_function() -> None:
    i = torch.tensor([0, 4, 1])
    graph = capture(many_forms, (X, i)).graph
    source = function_of(graph, graph.user_ops)
    given = dict(zip(graph.input_ids, (X, i), strict=True))
    mine = source.function()(*(given[v] for v in source.inputs))
    assert set(source.outputs) == set(graph.outputs)
    by_id = dict(zip(source.outputs, mine, strict=True))
    for v, y in zip(graph.outputs, many_forms(X, i), strict=True):
        assert torch.equal(by_id[v], y) and by_id[v].dtype == y.dtype


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
def test_inductor_is_bisected_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from torch._inductor import config
    from torch._inductor.codegen import cpp

    for overrides in (cpp.CppOverrides, cpp.CppVecOverrides):
        monkeypatch.setattr(overrides, "erf", staticmethod(lambda x: f"({x})"))
    x = torch.ones(1, 1)

    def fn(x):
        return torch.erf(x) + 1

    with config.patch(force_disable_caches=True):
        found = verify(by_inductor(fn, (x,), {}), capture(fn, (x,)), (x,), sets=PLAIN)
        assert not found.ok
        culprit = bisect_inductor(capture(fn, (x,)), (x,), {}, found)
        assert [u.name for u in culprit.operators] == ["erf"]
        path = tmp_path / "repro.py"
        path.write_text(script(culprit, None, "accurate"))
        assert exit_of(path) == 1
