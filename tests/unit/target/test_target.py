"""Targets: named tables, the host's record, and what is detected of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fusebound.errors import FormatError, UsageError
from fusebound.target import get, names
from fusebound.target.host import estimate
from fusebound.target.load import table_names, target_from
from fusebound.target.machine import Machine, this_machine
from fusebound.target.record import Record, load_record, read_record, record_path, write_record


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FB_CACHE_DIR", str(tmp_path / "cache"))


def test_the_names_of_the_design_exist() -> None:
    assert names()[0] == "host"
    assert {"cpu-avx512", "cpu-avx2", "cpu-neon", "cpu-generic", "a100", "h100", "h200"} <= set(names())


@pytest.mark.parametrize("name", table_names())
def test_a_table_is_complete_and_consistent(name: str) -> None:
    t = get(name)
    assert t.name == name and not t.calibrated and t.source
    assert t.dram_bandwidth < t.l2_bandwidth and 0 < t.strided_fraction < 1
    if t.kind == "cpu":
        assert t.l1_bytes < t.l2_bytes < t.l3_bytes and t.dram_bandwidth < t.l3_bandwidth < t.l2_bandwidth
        assert t.vector_registers >= 16 and t.sms == 0 and t.lanes * 32 == t.vector_bits
    else:
        assert t.sms > 100 and t.registers_per_sm == 65536 and t.max_registers_per_thread == 255
        assert t.shared_static_bytes < t.shared_optin_bytes < t.shared_per_sm_bytes
        assert t.streams > 1


def test_known_vector_widths() -> None:
    assert (get("cpu-avx2").lanes, get("cpu-avx512").lanes, get("cpu-neon").lanes) == (8, 16, 4)


def test_a_misspelt_name_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"did you mean `h100`") as caught:
        get("h10O")
    assert caught.value.code == "E101"


def machine(**facts: object) -> Machine:
    base = Machine("Model", "x86_64", 4, frozenset(("avx2", "fma")), 1 << 15, 1 << 19, 1 << 24, 2)
    return replace(base, **facts)  # type: ignore[arg-type]


def test_the_nearest_table() -> None:
    wide = frozenset(["avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"])
    assert machine().table == "cpu-avx2"
    assert machine(features=wide).table == "cpu-avx512"
    assert machine(features=frozenset(("sse2",))).table == "cpu-generic"
    assert machine(features=frozenset(("asimd",)), arch="aarch64").table == "cpu-neon"


def test_an_estimate_keeps_the_machine_s_own_facts() -> None:
    t = estimate(machine(), threads=4)
    table = get("cpu-avx2")
    assert (t.name, t.calibrated, t.threads) == ("host", False, 4)
    assert (t.l1_bytes, t.l2_bytes, t.l3_bytes) == (1 << 15, 1 << 19, 1 << 24)
    assert t.flops == table.flops / 2 and t.dram_bandwidth < table.dram_bandwidth
    assert "not calibrated" in t.source


def test_fingerprints_tell_machines_apart() -> None:
    assert machine().fingerprint == machine().fingerprint
    assert machine().fingerprint != machine(cores=8).fingerprint
    assert machine().fingerprint != machine(model="Other").fingerprint
    assert machine().fingerprint == machine(features=frozenset(("avx2", "fma", "md_clear"))).fingerprint


def a_record(fingerprint: str) -> Record:
    target = replace(get("cpu-avx2"), name="host", calibrated=True, dram_bandwidth=12345.0)
    return Record(
        target,
        fingerprint,
        "m",
        2,
        "2026-01-01T00:00:00Z",
        "quick",
        5,
        (("torch", "2"),),
        (("x", 0.1),),
        ("noise",),
    )


def test_a_record_becomes_the_host() -> None:
    assert not get("host").calibrated
    written = a_record(this_machine().fingerprint)
    path = write_record(written)
    assert path.stat().st_mode & 0o077 == 0
    assert read_record() == written and get("host") == written.target


def test_a_record_is_scaled_to_the_threads_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    written = a_record(this_machine().fingerprint)
    write_record(written)
    monkeypatch.setenv("FB_THREADS", "2")
    host = get("host")
    assert host.threads == 2 and host.flops == written.target.flops / 4 and host.calibrated
    assert written.target.dram_bandwidth > host.dram_bandwidth > written.target.dram_bandwidth / 4
    monkeypatch.setenv("FB_THREADS", str(written.target.threads))
    assert get("host") == written.target


def test_another_machine_s_or_a_damaged_record_is_not_used() -> None:
    write_record(a_record("other"))
    assert read_record() is None
    record_path().write_text("{")
    assert read_record() is None and not get("host").calibrated


@pytest.mark.parametrize(
    "damage",
    [
        {"format": "x"},
        {"target": {}},
        {"runs": "many"},
        {"spread": 3},
        {"doubts": 3},
        {"target": {"name": 1}},
    ],
)
def test_a_damaged_record_is_located(damage: dict[str, object]) -> None:
    text = json.dumps(a_record("f").dump() | damage)
    with pytest.raises(FormatError, match=r"here\.json"):
        load_record(text, where="here.json")


def test_target_fields_are_checked() -> None:
    good = {f: getattr(get("a100"), f) for f in get("a100").__slots__}
    assert target_from(dict(good), where="w") == get("a100")
    for bad in ({"sms": -1}, {"sms": True}, {"flops": float("nan")}, {"name": 3}, {"colour": 1}):
        with pytest.raises(FormatError):
            target_from(good | bad, where="w")


def test_targets_load_neither_torch_nor_numpy() -> None:
    code = "import sys, fusebound.target as t; t.get('host'); exit(bool({'torch', 'numpy'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
