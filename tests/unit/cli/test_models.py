"""MODEL in all its forms, through the commands that build and measure it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import fusebound as fb
from fusebound.api.model import from_file
from fusebound.api.resize import resized
from fusebound.cli.main import invoke
from fusebound.ir import json as graph_json

MODEL = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Linear(32, 64)
        self.norm = torch.nn.BatchNorm1d(64)

    def forward(self, x):
        return torch.relu(self.norm(self.stem(x))) * 2

    def example_inputs(self):
        return torch.linspace(-3, 3, 16 * 32).reshape(16, 32)

def keyword(a, b):
    return torch.relu(a * b) + 1

keyword.example_inputs = lambda: {"b": torch.ones(8, 32), "a": torch.ones(8, 32)}

def nothing():
    return 3

nothing.example_inputs = lambda: ()
"""

PAYS = ("--expected-calls", "100000000")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("user") / "model.py"
    path.write_text(MODEL)
    return str(path)


@pytest.fixture(scope="module")
def saved(model: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A module as a saved plan and as a saved graph, a function of keywords as an archive."""
    folder = tmp_path_factory.mktemp("saved")
    files = {
        "plan": str(folder / "plan.json"),
        "graph": str(folder / "graph.json"),
        "pt2": str(folder / "m.pt2"),
    }
    assert invoke(["plan", f"{model}:Block", "--save", files["plan"], *PAYS]) == 0
    Path(files["graph"]).write_text(json.dumps(graph_json.dump(fb.load(files["plan"]))))

    class Gated(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.relu(a * b) + 1

    example = {"a": torch.ones(8, 32), "b": torch.ones(8, 32)}
    torch.export.save(torch.export.export(Gated(), (), kwargs=example, strict=False), files["pt2"])
    return files


@pytest.mark.parametrize("form", ["plan", "graph", "pt2"])
@pytest.mark.parametrize("command", [("kernel",), ("bench", "--rounds", "3")])
def test_saved_programs_are_built_and_measured(
    saved: dict[str, str], form: str, command: tuple[str, ...]
) -> None:
    assert invoke([*command, saved[form], *PAYS]) in (0, 1)  # a bench of something this small may lose


def test_keyword_inputs_are_swept_and_resized(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["sweep", f"{model}:keyword", "--rounds", "3", "--format", "json", *PAYS]) == 0
    out, err = capsys.readouterr()
    assert [p["size"] for p in json.loads(out)["points"]] == [1, 2, 8]
    assert "1, 2, 8" in err and "--sizes" in err


def test_a_saved_module_is_swept_over_its_input(
    saved: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        invoke(["sweep", saved["plan"], "--rounds", "3", "--sizes", "4,16", "--format", "json", *PAYS]) == 0
    )
    out = capsys.readouterr().out
    assert [p["size"] for p in json.loads(out)["points"]] == [4, 16]
    model = resized(from_file(Path(saved["plan"])), 4)
    assert [tuple(x.shape) for x in model.args] == [(64, 32), (64,), (64,), (64,), (64,), (64,), (4, 32)]


def test_a_program_that_computes_nothing_says_so(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", f"{model}:nothing", "--hardware", "cpu-avx512"]) == 0
    assert "nothing is computed" in capsys.readouterr().out


def test_policy_none_says_that_it_fuses_nothing(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["plan", f"{model}:keyword", "--policy", "none"]) == 0
    assert "policy none fuses nothing: the program stays as it is" in capsys.readouterr().out
