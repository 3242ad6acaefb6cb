"""A MODEL that is not there is told of before torch is imported, which takes seconds."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.null.test_import import probe

from fusebound import files
from fusebound.cli.main import invoke

COMMANDS = (
    ("run",),
    ("plan",),
    ("why", "a", "b"),
    ("log",),
    ("verify",),
    ("bench",),
    ("kernel",),
    ("sweep",),
)

UNREADABLE = (
    ("absent.py", "E102"),
    ("absent.py:f", "E102"),
    ("absent.json", "E102"),
    ("absent.pt2", "E102"),
    ("no_such_package.module:f", "E102"),
    ("no-such-scenario", "E101"),
    ("folder", "E106"),
    ("folder.json", "E106"),
    ("text.txt", "E106"),
    ("nameless.py", "E103"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with one of each kind of thing that cannot be read; no calibration record is near."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.json").mkdir()
    for name in ("text.txt", "nameless.py", "locked.py", "locked.json", "locked.pt2"):
        (tmp_path / name).touch()
    monkeypatch.setenv("FB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_no_command_imports_torch_to_miss_a_model() -> None:
    """Every command in one interpreter; `--threads` and a machine without a record would each load torch first."""
    lines = [(c, m, *rest, "--threads", "1") for c, *rest in COMMANDS for m, _ in UNREADABLE]
    body = f"import fusebound.cli.main as m\nfor line in {lines!r}: assert m.invoke(line) == 2, line"
    loaded = probe(body)["loaded"]
    assert isinstance(loaded, list) and "torch" not in loaded


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("model", "code"), UNREADABLE)
def test_what_is_said(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...], model: str, code: str
) -> None:
    assert invoke([command[0], model, *command[1:]]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"error[{code}]")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("model", ["locked.py:f", "locked.json", "locked.pt2"])
def test_a_file_that_may_not_be_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """The system's refusal is made up: root, who may run this, reads every file."""

    def refuse(path: Path, *_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(files.os, "open", refuse)
    assert invoke(["run", model]) == 2
    assert capsys.readouterr().err.startswith("error[E110]: cannot read the file: Permission denied")
