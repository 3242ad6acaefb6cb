"""Calibration writes a complete record that becomes `host`; its figures are only checked for sense."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fusebound.measure import calibrate as calibration
from fusebound.measure import environment
from fusebound.measure.calibrate import Figure, calibrate
from fusebound.measure.environment import describe, noise, versions
from fusebound.target import get
from fusebound.target.machine import this_machine
from fusebound.target.record import read_record


def test_a_quick_calibration_becomes_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(calibration, "_QUICK", 8)
    assert not get("host").calibrated
    monkeypatch.setattr(environment, "_load", lambda: 7.0)
    record = calibrate(quick=True)
    target = record.target
    assert record == read_record() and target == get("host")
    assert "load average 7.0 on" in record.doubts[0] and target.source.endswith(", doubtful)")
    assert target.calibrated and "quick" in target.source and record.runs == 8
    assert target.l2_bandwidth >= target.l3_bandwidth >= target.dram_bandwidth > 0
    assert 0 < target.strided_fraction <= 1 and target.flops > 0 and target.page_fault_us >= 0
    assert min(target.launch_us, target.framework_us, target.fork_us, target.compile_us) > 0
    assert {"l2_bandwidth", "dram_bandwidth", "launch_us", "compile_us"} <= dict(record.spread).keys()
    assert dict(record.versions)["torch"] == versions()["torch"]


def test_levels_stay_in_order_whatever_noise_says() -> None:
    noisy = {
        n: Figure(v, 0.0) for n, v in (("l2_bandwidth", 5.0), ("l3_bandwidth", 1.0), ("dram_bandwidth", 7.0))
    }
    assert [f.value for f in calibration._ordered(noisy).values()] == [7.0, 7.0, 7.0]


def test_what_is_doubted() -> None:
    figures = {"flops": Figure(1.0, 0.2), "l2_bandwidth": Figure(1.0, 0.783), "launch_us": Figure(1.0, 0.51)}
    quiet = {"flops": figures["flops"]}
    assert list(calibration._doubts(quiet, False, None)) == []
    crowd, noisy = calibration._doubts(figures, True, None)
    assert "measured on one thread" in crowd
    assert noisy == "spread above 50% of the median: l2_bandwidth 78%, launch_us 51%"


@pytest.mark.parametrize(
    ("load", "cores", "said"), [(1.2, 2, False), (1.3, 2, True), (6.0, 64, False), (8.0, 64, True)]
)
def test_a_machine_is_busy_beyond_this_process_and_a_tenth_of_its_cores(
    monkeypatch: pytest.MonkeyPatch, load: float, cores: int, said: bool
) -> None:
    machine = replace(this_machine(), cores=cores)
    monkeypatch.setattr(environment, "this_machine", lambda: machine)
    monkeypatch.setattr(environment, "_load", lambda: load)
    assert environment.busy() == (load if said else None)
    assert any("other work runs beside" in n for n in noise()) is said


def test_the_environment_is_plain_data_and_explains_noise() -> None:
    import json

    facts = describe()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["versions"]["torch"] and facts["threads"] >= 1 and facts["cores"] >= 1
    assert facts["noise"] == list(noise()) and all(isinstance(n, str) for n in facts["noise"])
