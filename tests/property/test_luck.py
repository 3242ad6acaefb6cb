"""The judge of random programs takes a bad draw of few elements for luck, and a kernel that is always worse not."""

from __future__ import annotations

from tests.property.draft import draw
from tests.property.judge import FOREVER, PLANNED_FOR, differs, plain, worse
from tests.property.luck import is_luck

from fusebound.capture.torch import capture
from fusebound.engine.build import build
from fusebound.plan.greedy import plan
from fusebound.target import get
from fusebound.verify.inputs import GIVEN


def test_one_draw_of_few_elements_is_luck() -> None:
    source, values = draw(213730), 34  # layer_norm of three values that are nearly equal, after erfc and tanh
    captured = capture(source.function, source.arguments(1))
    made = plan(captured.graph, target=get(PLANNED_FOR), policy="elementwise", expected_calls=FOREVER)
    exe = build(made, captured, threads=1)
    assert worse(source, captured, exe, source.arguments(values), GIVEN)
    assert differs(source, captured, exe, values) == ""

    right = plain(exe)

    def wrong(*args):
        a, b, normed, d = right(*args)
        return a, b, normed * (1 + 1e-6), d

    wrong.counted_draws = exe.counted_draws  # type: ignore[attr-defined]
    assert is_luck(source, captured, right, values) and not is_luck(source, captured, wrong, values)  # type: ignore[arg-type]
