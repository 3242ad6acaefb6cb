"""Text files: bounded reading, and writing that leaves the old file or the new one, whatever happens."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fusebound import files
from fusebound.errors import FormatError
from fusebound.files import read_text, write_text
from fusebound.gates.rules import read_rules
from fusebound.plan.plan import Plan
from fusebound.report.codec import loads
from fusebound.report.schema import Report

READERS: dict[str, Callable[[Path], object]] = {
    "plan": Plan.load,
    "report": Report.load,
    "rules": read_rules,
    "json": loads,
    "text": lambda path: read_text(path, "the file"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["absent", "folder", "pipe", "zeros", "latin", "null", "loop", "large"])
def test_what_is_no_text_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, kind: str
) -> None:
    path = tmp_path / "file"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "zeros":
            path = Path("/dev/zero")
        case "latin":
            path.write_bytes("größe".encode("latin-1"))
        case "null":
            path = tmp_path / "a\0b"
        case "loop":
            path.symlink_to(path)
        case "large":
            monkeypatch.setattr(files, "LIMIT", 10)
            path.write_bytes(b"x" * 11)
    with pytest.raises(FormatError, match="cannot read") as e:
        READERS[reader](path)
    assert e.value.where == str(path)
    assert e.value.code == ("E102" if kind == "absent" else "E110")


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    write_text(path, "old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_text(link, "größe")
    assert link.is_symlink() and path.read_text(encoding="utf-8") == "größe"
    assert path.stat().st_mode & 0o777 == 0o640 and len(list(tmp_path.iterdir())) == 2


def test_what_is_no_file_is_written_to_and_not_replaced() -> None:
    write_text(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()


def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_text(path, "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="no space") as e:
        write_text(path, "new")
    assert e.value.filename == str(path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


WRITER = """
import sys
from pathlib import Path
from fusebound.files import write_text
import json
i = 0
while True:
    write_text(Path(sys.argv[1]), json.dumps([i] * 100_000))
    i += 1
"""


def test_a_writer_that_is_killed_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for wait in (0.0, 0.003, 0.01):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
        while not path.exists():
            time.sleep(0.001)
        time.sleep(wait)
        process.kill()
        process.wait()
        assert len(set(json.loads(read_text(path, "it")))) == 1
        path.unlink()


def test_every_writer_is_whole_or_not_at_all() -> None:
    """Nothing else in the package opens a file to write it; a stream that is open already is another matter."""
    source = Path(files.__file__).parent
    for path in source.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "files.py":
            assert ".write_text(" not in text and ".write_bytes(" not in text, path
            assert "mkstemp" not in text and "O_CREAT" not in text.replace("O_APPEND | os.O_CREAT", ""), path
