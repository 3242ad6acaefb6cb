"""The judge of random programs takes a bad draw of few numbers for luck, and a kernel that is always worse not."""

from __future__ import annotations

import pytest
from tests.property.judge import FOREVER, PLANNED_FOR, differs, plain
from tests.property.programs import Given, Program

from fusebound.capture.torch import Captured, capture
from fusebound.engine.build import build
from fusebound.plan.greedy import plan
from fusebound.runtime.executable import Executable
from fusebound.target import get


def program(shape: tuple[int, ...], layout: int, line: str) -> Program:
    x = Given("x", shape, "float32", layout, real=True)
    return Program(0, False, (x,), (line,), ("v",))


ROW = program((2, 1, 1, 3), 539570048, "v = F.layer_norm(x.erfc().tanh(), (3,))")
"""On draw 34 a row is of three values that are nearly equal."""
EXPANDED = program((300,), 2, "v = x.exp().log() - x")
"""300 elements of stride 0: one number, with a large error on draw 168."""


def built(source: Program) -> tuple[Captured, Executable]:
    captured = capture(source.function, source.arguments(1))
    made = plan(captured.graph, target=get(PLANNED_FOR), policy="elementwise", expected_calls=FOREVER)
    return captured, build(made, captured, threads=1)


@pytest.mark.parametrize(("source", "values"), [(ROW, 34), (EXPANDED, 168)])
def test_one_draw_of_few_numbers_is_luck(source: Program, values: int) -> None:
    captured, exe = built(source)
    assert differs(source, captured, exe, values) == ""


def test_what_is_worse_on_every_draw_is_no_luck() -> None:
    captured, exe = built(ROW)
    right = plain(exe)

    def wrong(*args):
        return right(*args) * (1 + 1e-6) + 1e-6

    wrong.counted_draws = exe.counted_draws  # type: ignore[attr-defined]
    assert "FAILED" in differs(ROW, captured, wrong, 34)  # type: ignore[arg-type]


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_runs_that_differ_are_no_luck(calls: int) -> None:
    """Wrong on its first calls, right on every draw that luck would add."""
    source = program((2, 3), 0, "v = x.exp() + 1")
    captured, right = built(source)
    done: list[int] = []

    def flaky(*args):
        done.append(0)
        return right(*args) * (1 + 1e-5 * (len(done) <= calls))

    flaky.counted_draws = 0  # type: ignore[attr-defined]
    fault = differs(source, captured, flaky, 1)  # type: ignore[arg-type]
    assert ("FAILED" in fault) == (calls > 1), fault
