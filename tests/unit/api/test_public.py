"""The Python surface: each public function on a small program."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fusebound as fb
from fusebound.engine.compile import EagerNotice
from fusebound.errors import CaptureError, UsageError
from fusebound.target import get

MANY = 10**9
"""Calls over which compiling always pays."""


def scaled_softmax(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x * 2, -1)
    return y * w


@pytest.fixture(scope="module")
def args() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(256, 1000), torch.rand(1000)


@pytest.fixture(scope="module")
def graph(args: tuple[torch.Tensor, torch.Tensor]) -> fb.Graph:
    return fb.capture(scaled_softmax, *args)


@pytest.fixture(scope="module")
def plan(graph: fb.Graph) -> fb.Plan:
    return fb.plan(graph, hardware="cpu-avx512", expected_calls=MANY)


def test_a_plan_has_one_kernel_and_is_built(plan: fb.Plan, args: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert [g.users for g in plan.groups] == [("mul", "softmax", "mul_1")]
    exe = fb.build(plan)
    torch.testing.assert_close(exe(*args), scaled_softmax(*args))
    kernel = exe.kernels[0]
    assert "softmax" in kernel.source and kernel.asm and kernel.resources


def test_a_plan_for_a_gpu_is_read_and_asked_but_not_built(
    graph: fb.Graph, args: tuple[torch.Tensor, torch.Tensor]
) -> None:
    there = fb.plan(graph, hardware="h100", expected_calls=10**9)
    assert there.kernels and there.target == "h100"
    with pytest.raises(UsageError, match="kernels for h100 cannot run here") as refused:
        fb.build(there)
    assert refused.value.code == "E131"
    compiled = fb.compile(scaled_softmax, hardware="h100", expected_calls=10**9)
    with torch.no_grad(), pytest.warns(EagerNotice, match="kernels for h100 cannot run here"):
        torch.testing.assert_close(compiled(*args), scaled_softmax(*args))
    assert compiled.executable is None


def test_why_and_can_fuse_agree(graph: fb.Graph, plan: fb.Plan) -> None:
    for answer in (
        plan.why("softmax", "mul_1"),
        fb.why(plan, "softmax", "mul_1"),
        fb.can_fuse(graph, "softmax", "mul_1", hardware=get("cpu-avx512"), expected_calls=MANY),
    ):
        assert answer and answer.codes == ()
        for gate in ("dependence", "precision", "resources", "gain"):
            assert getattr(answer, gate).state == "pass"


def test_verify_and_bench_report(plan: fb.Plan, args: tuple[torch.Tensor, torch.Tensor]) -> None:
    exe = fb.build(plan)
    checked = fb.verify(exe, *args)
    assert checked.ok
    text = str(checked).splitlines()
    assert any("error against fp64" in line for line in text) and max(map(len, text)) <= 110
    report = fb.bench(exe, *args, rounds=3)
    ratio = report.ratio()
    assert ratio is not None and ratio.rounds == 3
    assert report.groups[0].measured_us


def test_a_saved_plan_is_built_without_the_function(
    plan: fb.Plan, args: tuple[torch.Tensor, torch.Tensor], tmp_path: Path
) -> None:
    plan.save(tmp_path / "plan.json")
    loaded = fb.Plan.load(tmp_path / "plan.json")
    assert not plan.diff(loaded)
    assert torch.equal(fb.build(loaded)(*args), fb.build(plan)(*args))
    assert fb.load(tmp_path / "plan.json").key == plan.graph.key


def test_a_registered_operator_is_fused() -> None:
    @torch.library.custom_op("fbtest::swish", mutates_args=())
    def swish(x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)

    swish.register_fake(torch.empty_like)

    def program(x: torch.Tensor) -> torch.Tensor:
        return swish(x) + 1

    x = torch.randn(64, 1000)
    alone = fb.plan(fb.capture(program, x), hardware="cpu-avx512", expected_calls=MANY)
    assert not any(g.is_kernel for g in alone.groups)
    fb.register_op("fbtest::swish", "pointwise", lower=lambda c, x: x * c("sigmoid", x))
    together = fb.plan(fb.capture(program, x), hardware="cpu-avx512", expected_calls=MANY)
    assert [len(g.users) for g in together.groups] == [2]
    torch.testing.assert_close(fb.build(together)(x), program(x))


@pytest.mark.parametrize(
    ("lower", "words"),
    [
        (lambda c, x: c("sigmoidd", x), "unknown primitive 'sigmoidd'"),
        (lambda c, x: x.foo, "AttributeError"),
        (lambda c: c, "TypeError"),
        (lambda c, x: None, "AttributeError"),
    ],
)
def test_a_fault_in_lower_is_told_with_its_line(lower: Callable[..., object], words: str) -> None:
    @torch.library.custom_op("fbtest::broken", mutates_args=())
    def broken(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    broken.register_fake(torch.empty_like)
    fb.register_op("fbtest::broken", "pointwise", lower=lower)
    with pytest.raises(CaptureError, match=r"the `lower` .* fbtest\.broken\.default fails") as e:
        fb.capture(lambda x: broken(x) + 1, torch.ones(3))
    assert e.value.code == "E211" and words in e.value.what
    assert e.value.where == f"{__file__}:{lower.__code__.co_firstlineno}"


def test_compile_runs_and_names_its_plan(args: tuple[torch.Tensor, torch.Tensor]) -> None:
    f = fb.compile(scaled_softmax, expected_calls=MANY)
    assert f.plan is None
    torch.testing.assert_close(f(*args), scaled_softmax(*args))
    assert f.plan is not None or f.reason.startswith("measured")


def test_compile_takes_what_it_is_not_told_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FB_EXPECTED_CALLS", "7")
    monkeypatch.setenv("FB_STRICT", "1")
    options = fb.compile(scaled_softmax).options
    assert (options.expected_calls, options.strict) == (7, True)
    options = fb.compile(scaled_softmax, expected_calls=9, strict=False).options
    assert (options.expected_calls, options.strict) == (9, False)


def test_plans_and_verdicts_take_expected_calls_from_the_environment(
    graph: fb.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FB_EXPECTED_CALLS", "1")
    assert fb.plan(graph, hardware="cpu-avx512").expected_calls == 1
    assert not fb.can_fuse(graph, "mul", "softmax", hardware="cpu-avx512")
    assert fb.can_fuse(graph, "mul", "softmax", hardware="cpu-avx512", expected_calls=MANY)


def test_importing_a_package_does_not_hide_the_function_of_its_name() -> None:
    for name in ("capture", "plan", "verify"):
        importlib.import_module(f"fusebound.{name}")
        assert callable(getattr(fb, name))


def test_every_public_name_exists_and_says_what_it_does() -> None:
    for name in fb.__all__:
        assert (getattr(fb, name).__doc__ or "").strip(), name
    assert not hasattr(fb, "no_such_name")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"policy": "tight"}, "tight"), ({"numerics": "fast"}, "fast"), ({"hardware": "h10"}, "h10")],
)
def test_unknown_settings_are_refused(graph: fb.Graph, arguments: dict[str, Any], words: str) -> None:
    for call in (
        lambda: fb.plan(graph, **arguments),
        lambda: fb.can_fuse(graph, "mul", "softmax", **arguments),
        lambda: fb.compile(scaled_softmax, **arguments),
    ):
        with pytest.raises(UsageError, match=words) as e:
            call()
        assert e.value.code == "E101"


def test_arguments_that_the_function_does_not_take(args: tuple[torch.Tensor, torch.Tensor]) -> None:
    with pytest.raises(UsageError, match=r"scaled_softmax\(x, w\).*missing a required argument: 'w'") as e:
        fb.capture(scaled_softmax, args[0])
    assert e.value.code == "E120" and e.value.where.startswith(__file__)


def test_a_difference_is_read_as_text(graph: fb.Graph, plan: fb.Plan) -> None:
    other = fb.plan(graph, hardware="cpu-avx512", policy="none")
    assert "- group mul + softmax + mul_1" in str(plan.diff(other)).splitlines()
    assert str(plan.diff(plan)) == "the plans are the same"


def test_arguments_that_were_not_built_for_are_refused_before_anything_is_verified() -> None:
    x, w = torch.ones(8, 4), torch.ones(4)
    exe = fb.build(fb.plan(fb.capture(scaled_softmax, x, w), hardware="cpu-avx512", expected_calls=MANY))
    with pytest.raises(UsageError, match="E123"):
        fb.verify(exe, x[:5], w)


@pytest.mark.parametrize(("fn", "check"), [(3, None), (torch.relu, "x"), (torch.relu, 0), (torch.relu, 2)])
def test_what_cannot_be_compiled_is_said_at_once(fn: object, check: object) -> None:
    with pytest.raises(UsageError, match="E100"):
        fb.compile(fn, check=check)  # type: ignore[arg-type]
