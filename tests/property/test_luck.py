"""The judge of random programs takes a bad draw of few numbers for luck, and a kernel that is always worse not."""

from __future__ import annotations

import pytest
from tests.property.judge import FOREVER, PLANNED_FOR, differs, plain, worse
from tests.property.luck import is_luck
from tests.property.programs import Given, Program

from fusebound.capture.torch import capture
from fusebound.engine.build import build
from fusebound.plan.greedy import plan
from fusebound.target import get
from fusebound.verify.inputs import GIVEN


def program(shape: tuple[int, ...], layout: int, line: str) -> Program:
    x = Given("x", shape, "float32", layout, real=True)
    return Program(0, False, (x,), (line,), ("v",))


ROW = program((2, 1, 1, 3), 539570048, "v = F.layer_norm(x.erfc().tanh(), (3,))")
"""On draw 34 a row is of three values that are nearly equal."""
EXPANDED = program((300,), 2, "v = x.sigmoid().log() + F.softplus(-x)")
"""300 elements of stride 0: one number, with a large error on draw 25."""


@pytest.mark.parametrize(("source", "values"), [(ROW, 34), (EXPANDED, 25)])
def test_one_draw_of_few_numbers_is_luck(source: Program, values: int) -> None:
    captured = capture(source.function, source.arguments(1))
    made = plan(captured.graph, target=get(PLANNED_FOR), policy="elementwise", expected_calls=FOREVER)
    exe = build(made, captured, threads=1)
    assert worse(source, captured, exe, source.arguments(values), GIVEN)
    assert differs(source, captured, exe, values) == ""

    right = plain(exe)

    def wrong(*args):
        return right(*args) * (1 + 1e-6) + 1e-6

    wrong.counted_draws = exe.counted_draws  # type: ignore[attr-defined]
    assert is_luck(source, captured, right, values) and not is_luck(source, captured, wrong, values)  # type: ignore[arg-type]
