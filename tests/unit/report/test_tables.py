"""The text face: complete figures at every width, no colour codes in a pipe."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from tests.unit.report.test_schema import error, sample

from fusebound.report import error_table, tables
from fusebound.report.group_table import groups, operators
from fusebound.report.schema import Report


def text_of(report: Report, width: int) -> str:
    stream = io.StringIO()
    tables.show(Console(file=stream, width=width, no_color=True, highlight=False), report)
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_figure_is_cut(width: int) -> None:
    text = text_of(sample(), width)
    for figure in ("2 → 1", "470 B → 201 B", "9.00 µs → 2.00 µs", "1.50 µs", "3.00x (2.80 to 3.20)", "F607"):
        assert figure in text
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text


def test_a_failed_check_stands_out() -> None:
    bad = error(set="tiny", ok=False, verdict="worse", detail="rms 2e-3 against 1e-7")
    text = text_of(replace(sample(), errors=(bad,), ok=False), 120)
    assert "FAILED on tiny: worse" in text


def test_the_worst_errors_are_shown_in_the_order_of_the_outputs() -> None:
    near = replace(error(), fused=replace(error().fused, rms=2 * error().fused.rms))
    outputs = [
        error(output=f"output {i}") if i % 2 else replace(near, output=f"output {i}") for i in range(9)
    ]
    shown = list(error_table.errors(replace(sample(), errors=tuple(outputs))).columns[0].cells)
    assert shown == [*(f"output {i}" for i in (0, 1, 2, 4, 6, 8)), "… 3 more"]


@pytest.mark.parametrize("width", [100, 120])
def test_three_ways_in_every_unit(width: int) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=width, no_color=True, highlight=False)
    console.print(error_table.three_ways(sample()))
    console.print(error_table.stored(sample()))
    text = stream.getvalue()
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "output 0 fused − fp64 1.0e-07 3.0e-07 1.0e-07 1.5e+00 4.0e+00 as eager" in lines
    assert "fused − eager 5.0e-08 1.0e-07 5.0e-08 5.0e-01 1.0e+00" in lines
    assert any(line.startswith("g0 gelu 1.0e-07 2.0e-07 1.5e+00") for line in lines)
    assert "finiteness gained: 3 elements" in " ".join(text.split())


def test_the_numbers_of_another_compiler_carry_its_name() -> None:
    report = replace(sample(), judged="inductor")
    rows = list(error_table.three_ways(report).columns[1].cells)
    assert rows[:3] == ["inductor − fp64", "eager − fp64", "inductor − eager"]
    assert (
        "compiled by inductor" in tables.heading(report).plain
        and "policy" not in tables.heading(report).plain
    )


def test_what_was_not_measured_is_absent() -> None:
    report = replace(sample(), timings=(), ratios=(), errors=(), checks=(), phases=())
    text = text_of(report, 100)
    for heading in ("over eager", "error against fp64", "time spent"):
        assert heading not in text


def test_everything_fused_has_no_limit() -> None:
    report = sample()
    text = text_of(replace(report, shares=replace(report.shares, time=1.0, limit=None)), 120)
    assert "nothing is left unfused" in text


def test_a_long_list_of_operators_says_how_many_it_hides() -> None:
    group = replace(sample().groups[0], operators=tuple(f"op_{i}" for i in range(20)), lines=())
    assert operators(group) == "op_0, op_1, op_2, op_3, op_4, … 14 more …, op_19"


def test_light_framework_operators_in_a_row_share_a_line() -> None:
    kernel, linear = sample().groups
    light = replace(linear, operators=("view",), lines=("m.py:9",), eager_us=0.01, predicted_us=0.01)
    report = replace(
        sample(),
        predicted_eager_us=100.0,
        groups=(
            light,
            replace(light, operators=("neg",), lines=("m.py:4-5",)),
            kernel,
            replace(linear, eager_us=90.0),
        ),
    )
    column = list(groups(report).columns[1].cells)
    assert column[0] == "view, neg (m.py:4-9)"
    assert column[1:3] == ["add, gelu (m.py:3-4)", "linear"]
