"""`.pt2` archives: what torch.export writes is read, what would run code is not."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import torch
from torch.export import Dim

import fusebound as fb
from fusebound.api.sizes import is_size
from fusebound.errors import CaptureError


class Program(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(torch.cat([x, y]) * 2) + x.shape[0], x.reshape(2 * x.shape[0], -1) + 1


class Mode(torch.nn.Module):
    def forward(self, x: torch.Tensor, mode: str) -> torch.Tensor:
        return x.exp() * 2


def test_a_dynamic_batch_is_read(tmp_path: Path) -> None:
    args = (torch.randn(8, 16), torch.randn(9, 16))
    sizes = ({0: Dim("A", min=2, max=64)}, {0: Dim("B", min=2, max=64)})
    torch.export.save(
        torch.export.export(Program(), args, dynamic_shapes=sizes, strict=False), tmp_path / "m.pt2"
    )
    graph = fb.load(tmp_path / "m.pt2")
    assert [graph.values[i].shape for i in graph.input_ids] == [(8, 16), (9, 16)]


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_number_that_json_does_not_have_is_read(tmp_path: Path, value: float) -> None:
    class Masked(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.masked_fill(x > 0, value).softmax(-1)

    torch.export.save(torch.export.export(Masked(), (torch.randn(3, 4),)), tmp_path / "m.pt2")
    graph = fb.load(tmp_path / "m.pt2")
    assert any(repr(float(a)) == repr(value) for u in graph.user_ops for a in u.args if isinstance(a, float))


@pytest.mark.parametrize(
    "text",
    [
        "Symbol('s77', positive=True, integer=True)",
        "Mul(Integer(16), Symbol('s17', positive=True, integer=True))",
        "GreaterThan(Symbol('u0', integer=True), Integer(0))",
        "Add(Mul(Rational(1, 2), Symbol('s0')), Float('1.5', precision=53))",
        "2*s0 + Max(1, u0)//3",
        "s0 >= 2",
    ],
)
def test_sizes_of_torch(text: str) -> None:
    assert is_size(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "Symbol('s0').__class__",
        "Symbol(open(0))",
        "Symbol('exit()')",
        "Symbol('s0', **{})",
        "Symbol('s0', integer=open(0))",
        "Float('__import__(\"os\")')",
        "Function('f')(2)",
        "sympify('2')",
        "open",
        "input()",
        "lambda: 1",
        "[x for x in s0]",
        "s0 if s1 else s2",
        "(s0 := 3)",
        "f'{s0}'",
        "s0\nexit()",
        "(" * 10_000,
        "",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert not is_size(text)


def test_a_string_of_the_archive_does_not_become_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch makes guards of constant arguments by pasting them between quotes."""
    monkeypatch.chdir(tmp_path)
    clean, evil = tmp_path / "clean.pt2", tmp_path / "evil.pt2"
    torch.export.save(torch.export.export(Mode(), (torch.randn(4, 8), "MODE"), strict=False), clean)
    payload = "' or open('payload-was-run', 'w') or '"
    with zipfile.ZipFile(clean) as source, zipfile.ZipFile(evil, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if "models/" in name and name.endswith(".json"):
                content = content.replace(b"MODE", json.dumps(payload)[1:-1].encode())
            target.writestr(name, content)
    with pytest.raises(CaptureError, match="to be equal to"):  # its example inputs say MODE still
        fb.load(evil)
    assert not Path("payload-was-run").exists()
