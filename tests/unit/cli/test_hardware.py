"""`fusebound hardware`: a doubtful record is shown with what speaks against it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fusebound.cli.main import invoke
from fusebound.target.host import estimate
from fusebound.target.machine import this_machine
from fusebound.target.record import Record, write_record

DOUBT = "spread above 50% of the median: flops 71%"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FB_CACHE_DIR", str(tmp_path / "cache"))


def calibrated(*doubts: str) -> None:
    """Leave a record of this machine."""
    machine = this_machine()
    target = replace(estimate(machine, 1), calibrated=True)
    facts = ("2026-01-01T00:00:00+00:00", "quick", 5, (), (("flops", 0.71),), doubts)
    write_record(Record(target, machine.fingerprint, machine.model, machine.cores, *facts))


@pytest.mark.parametrize("format", ["text", "json"])
def test_doubts_are_said_beside_the_figures(capsys: pytest.CaptureFixture[str], format: str) -> None:
    calibrated(DOUBT, "other work")
    assert invoke(["hardware", "show", "--format", format]) == 0
    out, err = capsys.readouterr()
    assert err.startswith(f"warning: {DOUBT}\nwarning: other work\n") and "calibrate" in err
    assert "host" in out and DOUBT not in out


@pytest.mark.parametrize(("doubts", "name"), [((), "host"), ((DOUBT,), "a100")])
def test_nothing_is_said_of_a_sound_record_and_of_tables(
    capsys: pytest.CaptureFixture[str], doubts: tuple[str, ...], name: str
) -> None:
    calibrated(*doubts)
    assert invoke(["hardware", "show", name]) == 0
    assert capsys.readouterr().err == ""
