"""The calibration record of a machine: figures measured on it, with spread, date and versions."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, cast

from fusebound.errors import FormatError, FuseboundError
from fusebound.files import read_text, write_bytes
from fusebound.settings import cache_directory
from fusebound.target.load import target_from
from fusebound.target.machine import Machine, this_machine
from fusebound.target.target import Target

FORMAT = "fusebound.calibration/1"


@dataclass(frozen=True, slots=True)
class Record:
    """One calibration. `spread` is each figure's interquartile range over its median, `runs` counts rounds,
    `mode` is "quick" or "full", `date` is ISO 8601 in UTC, `versions` names the software measured. `doubts` says why
    its figures may not be what the machine can do, a sentence each."""

    target: Target
    fingerprint: str
    model: str
    cores: int
    date: str
    mode: str
    runs: int
    versions: tuple[tuple[str, str], ...]
    spread: tuple[tuple[str, float], ...]
    doubts: tuple[str, ...] = ()

    def dump(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "format": FORMAT,
            **{f.name: getattr(self, f.name) for f in fields(self)},
            "target": asdict(self.target),
            "versions": dict(self.versions),
            "spread": dict(self.spread),
        }


def load_record(text: str, *, where: str) -> Record:
    """The record in JSON `text`; raises FormatError, naming `where`, for anything else."""
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as why:
        raise FormatError(f"not JSON: {why}", where=where) from None
    if not isinstance(document, dict) or cast("dict[str, Any]", document).get("format") != FORMAT:
        raise FormatError("not a calibration record", where=where, hint=f"expected format {FORMAT!r}")
    data = cast("dict[str, Any]", document)
    try:
        return Record(
            target=target_from(dict(data["target"]), where=where),
            fingerprint=str(data["fingerprint"]),
            model=str(data["model"]),
            cores=int(data["cores"]),
            date=str(data["date"]),
            mode=str(data["mode"]),
            runs=int(data["runs"]),
            versions=tuple((str(k), str(v)) for k, v in dict(data["versions"]).items()),
            spread=tuple((str(k), float(v)) for k, v in dict(data["spread"]).items()),
            doubts=tuple(str(d) for d in data.get("doubts", ())),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as why:
        raise FormatError(f"damaged calibration record: {why!r}", where=where) from None


def record_path(machine: Machine | None = None) -> Path:
    """Where this machine's record is kept; the directory is not created."""
    return cache_directory(create=False) / f"calibration-{(machine or this_machine()).fingerprint}.json"


def read_record() -> Record | None:
    """This machine's record, or None where there is none, or it is damaged or another machine's."""
    path = record_path()
    try:
        record = load_record(read_text(path, "the calibration record"), where=str(path))
    except FuseboundError:
        return None
    return record if record.fingerprint == this_machine().fingerprint else None


def write_record(record: Record) -> Path:
    """Store `record` in the cache directory, whole or not at all, and return its path."""
    cache_directory()
    path = record_path()
    write_bytes(path, (json.dumps(record.dump(), indent=1) + "\n").encode(), mode=0o600)
    return path
