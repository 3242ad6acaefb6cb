"""Calibration writes a complete record that becomes `host`; its figures are only checked for sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusebound.measure import calibrate as calibration
from fusebound.measure.calibrate import Figure, calibrate
from fusebound.measure.environment import describe, noise, versions
from fusebound.target import get
from fusebound.target.record import read_record


def test_a_quick_calibration_becomes_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(calibration, "_QUICK", 8)
    assert not get("host").calibrated
    target = calibrate(quick=True)
    record = read_record()
    assert record is not None and record.target == target == get("host")
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


def test_the_environment_is_plain_data_and_explains_noise() -> None:
    import json

    facts = describe()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["versions"]["torch"] and facts["threads"] >= 1 and facts["cores"] >= 1
    assert facts["noise"] == list(noise()) and all(isinstance(n, str) for n in facts["noise"])
