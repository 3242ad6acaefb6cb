"""From plans of small graphs to reports: counts, bytes, shares, reasons."""

from __future__ import annotations

import pytest

from fusebound.ir.graph import Graph
from fusebound.ir.text import parse_graph
from fusebound.measure.bench import BenchResult, Opponent
from fusebound.measure.statistics import Samples, ratio
from fusebound.plan.greedy import plan
from fusebound.report.collect import report_of
from fusebound.report.results import with_bench, with_shapes, with_verify
from fusebound.report.schema import Report
from fusebound.target import get
from fusebound.verify.result import Figures, OutputCheck, VerifyResult
from fusebound.verify.shapes import ShapeCheck

TARGET = get("cpu-avx512")
ROWS, COLUMNS = 65_536, 1024
BYTES = 4 * ROWS * COLUMNS

CHAIN = f"""fusebound.graph 1 "chain"
%x = input user "x" : f32[{ROWS}, {COLUMNS}]
relu: aten.relu.default(%x) -> %relu pointwise at "model.py":3
  %relu.1 = const() {{value = 0.0}} : f32[]
  %relu = maximum(%x, %relu.1) : f32[{ROWS}, {COLUMNS}]
neg: aten.neg.default(%relu) -> %neg pointwise at "model.py":5
  %neg = neg(%relu) : f32[{ROWS}, {COLUMNS}]
return %neg
"""


def chain() -> Graph:
    return parse_graph(CHAIN)


def report(policy: str) -> Report:
    return report_of(plan(chain(), target=TARGET, policy=policy), TARGET, model="chain")


def test_a_fused_chain_saves_one_write_and_one_read() -> None:
    found = report("tile")
    assert (found.launches_before, found.launches_after) == (2, 1)
    assert (found.bytes_before, found.bytes_after) == (4 * BYTES, 2 * BYTES)
    assert found.groups[0].lines == ("model.py:3-5",)
    assert found.shares.operators == found.shares.bytes == found.shares.time == 1.0
    assert found.shares.limit is None
    assert found.remainders == ()


def test_levels_add_up_to_the_groups_bytes() -> None:
    found = report("tile")
    for g in found.groups:
        assert sum(x.after for x in g.levels if x.level != "register") == g.bytes_after
    assert sum(g.bytes_before for g in found.groups) == found.bytes_before
    assert {x.level for x in found.levels if x.after} == {"register", "dram"}


def test_without_fusion_everything_remains_with_a_reason() -> None:
    found = report("none")
    assert (found.bytes_before, found.bytes_after) == (4 * BYTES, 4 * BYTES)
    assert found.shares.operators == 0.0
    assert found.shares.limit == 1.0
    assert {r.operator for r in found.remainders} == {"relu (model.py:3)", "neg (model.py:5)"}
    assert all(r.code.startswith("F") and r.message for r in found.remainders)


def test_a_failed_boundary_shape_is_told() -> None:
    near, far = Figures(0.1, 0.1, 0.1, 1.0, 1.0), Figures(1.0, 1.0, 1.0, 9.0, 9.0)
    check = OutputCheck("random", "output 0", "float32", (3,), "worse", "rms", far, near, far)
    failed = VerifyResult((check,), ("random",), (), (), (), (), True, None, True, 0.1)
    assert failed.summary().startswith("1 check on 1 set of values: 1 worse; FAILED")
    found = with_shapes(
        report("tile"), [ShapeCheck("last axis 3", failed), ShapeCheck("last axis 0", None, "no")]
    )
    assert not found.ok
    assert any(line.startswith("FAILED at last axis 3: 1 check on") for line in found.checks), found.checks
    assert "refused by eager too: last axis 0" in found.checks


def test_an_error_has_its_row_alone_and_any_other_fault_a_line() -> None:
    near, far = Figures(0.1, 0.1, 0.1, 1.0, 1.0), Figures(1.0, 1.0, 1.0, 9.0, 9.0)
    check = OutputCheck("random", "output 0", "float32", (3,), "worse", "rms", far, near, far)
    failed = VerifyResult((check,), ("random",), (), (), ("strides",), (), None, None, True, 0.1)
    found = with_verify(report("tile"), failed)
    assert found.checks == ("1 check on 1 set of values: 1 worse", "FAILED: strides")
    assert [e.detail for e in found.errors] == ["rms"] and not found.ok


def test_sets_that_were_not_judged_are_one_line() -> None:
    refused, still = "the program refuses such arguments: E123", "no argument can lie so"
    unjudged = (("transposed", refused), ("every second element", still), ("expanded rows", refused))
    found = VerifyResult((), ("given",), (), (), (), (), True, None, True, 0.1, unjudged=unjudged)
    lines = [line for line in with_verify(report("tile"), found).checks if "judged" in line]
    assert lines == [f"not judged: transposed, expanded rows ({refused}); every second element ({still})"]


@pytest.mark.parametrize(("factor", "told"), [(0.3, "0.3x"), (0.6, ""), (1.9, ""), (2.6, "2.6x")])
def test_a_prediction_that_is_far_off_is_told(factor: float, told: str) -> None:
    made = report("tile")
    (group,) = made.groups
    us = factor * group.predicted_us
    fused, eager = (Samples(name, (us,) * 5) for name in ("fused", "eager"))
    same = Opponent("eager", eager, ratio(eager, fused), None, None, False, 0.0)
    found = with_bench(made, BenchResult(fused, None, (same,), ((group.id, us),), 1, 5, (), 0.1))
    words = f"the program took {told} the time predicted for cpu-avx512; kernel g0 took {told} its prediction"
    assert found.warnings == ((words,) if told else ())
