"""The code on the pages of the traps (E201 …) raises their error, at the marked line."""

from __future__ import annotations

import importlib.util
import inspect
import re
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from fusebound.capture.torch import capture
from fusebound.errors import CaptureError

PAGES = files("fusebound.cli") / "pages"
CODES = [p.name[:4] for p in PAGES.iterdir() if re.search(r"```python", p.read_text("utf-8"))]


def _block(code: str) -> str:
    found = re.search(r"```python\n(.*?)```", (PAGES / f"{code}.md").read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("code", sorted(set(CODES) - {"E207"}))
def test_the_code_on_a_page_raises_its_error(code: str, tmp_path: Path) -> None:
    lines = _block(code).split("\n")
    (marked,) = (k for k, line in enumerate(lines) if line.endswith(f"# {code}"))
    called_outside = not lines[marked].startswith(" ")
    if called_outside:
        del lines[marked]
    path = tmp_path / "page.py"
    path.write_text("import torch\nmodel = torch.nn.Linear(10, 10)\n" + "\n".join(lines), "utf-8")
    spec = importlib.util.spec_from_file_location("page", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    f = next(v for v in vars(module).values() if inspect.isfunction(v))
    x = torch.randn(10, 10)
    with pytest.raises(CaptureError) as e:
        capture(f, (x,) * len(inspect.signature(f).parameters))
    assert e.value.code == code
    if not called_outside:
        assert f"page.py:{marked + 3}" in e.value.where


def test_a_changed_number_raises_e207() -> None:
    names = {"torch": torch}
    source = _block("E207").split("\n\n")[0]
    exec(source, names)
    captured = capture(names["f"], (torch.ones(3), 2.0))
    with pytest.raises(CaptureError) as e:
        captured.bind((torch.ones(3), 3.0))
    assert e.value.code == "E207"
