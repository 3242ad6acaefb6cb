"""The report: JSON and back, refusal of damaged files, figures as people read them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fusebound.errors import FormatError
from fusebound.report import units
from fusebound.report.rows import error_rows, group_rows, timing_rows
from fusebound.report.schema import (
    FORMAT,
    ClassChange,
    Culprit,
    Figures,
    GroupRow,
    LevelBytes,
    OutputError,
    Phase,
    Ratio,
    Remainder,
    Report,
    Shares,
    Timing,
)

LEVELS = (LevelBytes("register", 10, 30), LevelBytes("dram", 470, 201))


def error(**changed: Any) -> OutputError:
    """One checked output."""
    found = OutputError(
        output="output 0",
        set="given",
        ok=True,
        verdict="as eager",
        fused=Figures(1e-7, 3e-7, 1e-7, 1.5, 4.0),
        eager=Figures(2e-7, 4e-7, 2e-7, 2.5, 3.0),
        apart=Figures(5e-8, 1e-7, 5e-8, 0.5, 1.0),
        changes=(ClassChange("finiteness gained", 3, True, "1.0 where eager has inf and fp64 1.0 at [0]"),),
    )
    return replace(found, **changed)


def sample() -> Report:
    """A report with one of everything."""
    return Report(
        model="m",
        graph_key="0123456789abcdef",
        policy="tile",
        numerics="accurate",
        target="cpu-avx512",
        calibrated=False,
        operators=4,
        views=1,
        launches_before=4,
        launches_after=2,
        levels=LEVELS,
        predicted_us=2.5,
        predicted_eager_us=10.0,
        lower_bound_us=2.0,
        peak_bytes=1000,
        groups=(
            GroupRow("g0", "kernel", ("add", "gelu"), ("m.py:3-4",), 2, 1, 470, 201, LEVELS, 2.0, 9.0, 1.5),
            GroupRow("g1", "framework", ("linear",), (), 1, 1, 0, 0, (), 0.5, 0.5),
        ),
        shares=Shares(0.5, 0.75, 0.9, 10.0),
        remainders=(Remainder("linear (m.py:9)", 0, 0.5, "F607", "runs through the framework"),),
        phases=(Phase("capture", 1.0), Phase("plan", 0.5)),
        errors=(error(),),
        stored=(error(output="gelu", group="g0"),),
        origin="g0",
        culprit=Culprit(
            "the kernel of gelu", "tiny", ("g0",), ("gelu",), ("a → b",), ("[1]",), "worse", "r.py"
        ),
        checks=("two runs give the same bits",),
        timings=(
            Timing("fused", "reused", 10.0, 9.0, 11.0, 21),
            Timing("eager", "reused", 30.0, 29.0, 31.0, 21),
        ),
        ratios=(Ratio("eager", "reused", 3.0, 2.8, 3.2, 21),),
        environment={"cpu": "some"},
    )


def test_json_round_trips(tmp_path: Path) -> None:
    report = sample()
    report.save(tmp_path / "r.json")
    assert Report.load(tmp_path / "r.json") == report
    assert next(iter(json.loads((tmp_path / "r.json").read_text()))) == "format"


def test_totals_leave_out_what_stays_on_chip() -> None:
    report = sample()
    assert (report.bytes_before, report.bytes_after, report.kernels) == (470, 201, 1)
    assert report.ratio() == Ratio("eager", "reused", 3.0, 2.8, 3.2, 21)
    assert report.ratio(memory="held") is None


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"model": 3}, "Report.model"),
        ({"operators": "four"}, "Report.operators"),
        ({"operators": True}, "Report.operators"),
        ({"levels": {}}, "Report.levels"),
        ({"levels": [{"level": "l2", "before": 1}]}, "Report.levels[0].after"),
        ({"predicted_us": None}, "Report.predicted_us"),
        ({"surprise": 1}, "Report.surprise"),
    ],
)
def test_a_damaged_report_is_refused_by_field(change: dict[str, object], where: str) -> None:
    with pytest.raises(FormatError) as caught:
        Report.from_json(sample().to_json() | change)
    assert caught.value.where == where


@pytest.mark.parametrize("data", [None, [], {}, {"format": "fusebound.report/999"}])
def test_another_format_is_refused(data: object) -> None:
    with pytest.raises(FormatError, match="not a fusebound report") as caught:
        Report.from_json(data)
    assert FORMAT in caught.value.hint


def test_a_file_that_is_not_json(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"format": ')
    with pytest.raises(FormatError, match="not JSON"):
        Report.load(tmp_path / "r.json")
    with pytest.raises(FormatError, match="no such file"):
        Report.load(tmp_path / "absent.json")


def test_damage_names_the_file_and_the_field(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(sample().to_json() | {"gap": 3}))
    with pytest.raises(FormatError) as caught:
        Report.load(path)
    assert caught.value.where == f"{path}: Report.gap"


def test_names_that_nobody_knows_are_shown_as_they_are() -> None:
    odd = replace(
        sample(), levels=(LevelBytes("l9", 1, 2),), timings=(Timing("fused", "shared", 1.0, 1.0, 1.0, 3),)
    )
    assert "l9" in str(odd) and "shared" in str(odd)


def test_rows_have_as_many_cells_as_their_header() -> None:
    for rows in (group_rows, error_rows, timing_rows):
        header, *body = rows(sample())
        assert body
        assert {len(row) for row in body} == {len(header)}


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "-"),
        (0.0, "0 µs"),
        (0.25, "250 ns"),
        (7.256, "7.26 µs"),
        (72.56, "72.6 µs"),
        (999.6, "1000 µs"),
        (4120.0, "4.12 ms"),
        (3.2e6, "3.20 s"),
        (float("inf"), "inf µs"),
    ],
)
def test_times(us: float | None, text: str) -> None:
    assert units.micros(us) == text


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (201_342_976, "201 MB"), (-5_000_000, "-5.00 MB")],
)
def test_sizes(n: int, text: str) -> None:
    assert units.size(n) == text
