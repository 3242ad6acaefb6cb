"""docs/python.md: its code runs, and it names every public name, option and variable."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import fusebound as fb
from fusebound.capture.lower import Ctx
from fusebound.settings import knobs

PAGE = (Path(__file__).parents[3] / "docs" / "python.md").read_text("utf-8")


def test_its_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/python.md", "exec"), names)
    said = capsys.readouterr().out
    assert "- group mul + softmax + mul_1" in said and "over eager" in said


def test_it_names_everything_public() -> None:
    assert [n for n in fb.__all__ if not re.search(rf"\b{n}\b", PAGE)] == []
    assert [n for n in inspect.signature(fb.compile).parameters if n != "fn" and f"`{n}`" not in PAGE] == []
    assert [env for _, env, _, _ in knobs() if f"`{env}`" not in PAGE] == []
    assert [name for name in re.findall(r"`c\.(\w+)", PAGE) if not hasattr(Ctx, name)] == []
