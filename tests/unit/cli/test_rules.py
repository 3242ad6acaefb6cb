"""`--rules` and `--tau`: what a rules file does to a plan, seen from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusebound.cli.main import invoke

MODEL = """
import torch

def chain(x):
    return torch.tanh(x * 2 + x) * 3

def example_inputs():
    return torch.linspace(-3, 3, 256 * 1024).reshape(256, 1024).bfloat16()
chain.example_inputs = example_inputs
"""
PLANNED = ("--hardware", "cpu-avx512", "--expected-calls", "100000000", "--format", "json")


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "rules_model.py").write_text(MODEL)
    return f"{tmp_path / 'rules_model.py'}:chain"


def groups(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    assert invoke(["plan", *arguments, *PLANNED]) == 0
    return [g["users"] for g in json.loads(capsys.readouterr().out)["groups"]]


def test_a_rules_file_moves_boundaries(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('forbid = [["add", "tanh"]]\n')
    assert groups(capsys, model) == [["mul", "add", "tanh", "mul_1"]]
    assert groups(capsys, model, "--rules", str(rules)) == [["mul", "add"], ["tanh", "mul_1"]]
    assert invoke(["why", model, "add", "tanh", "--rules", str(rules), *PLANNED]) == 0
    assert "F901" in json.loads(capsys.readouterr().out)["codes"]
    rules.write_text('[[tau]]\noperators = ["tanh", "mul_1"]\nulp = 0\n')
    assert groups(capsys, model, "--rules", str(rules)) == [["mul", "add", "tanh"], ["mul_1"]]


def test_a_bound_of_each_kind(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    tight = groups(capsys, model, "--tau", "relative=1e-9")
    assert tight == [["mul", "add"], ["tanh"], ["mul_1"]], "doubling is exact"
    assert groups(capsys, model, "--tau", "absolute=1e-9,ulp=100") == [["mul", "add", "tanh", "mul_1"]]


def test_a_pattern_that_names_nothing_is_said(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('forbid = [["softmx", "tanh"]]\n')
    assert invoke(["plan", model, "--rules", str(rules), *PLANNED]) == 0
    assert "no operator of chain is called 'softmx', which the rules name" in capsys.readouterr().err


def test_a_missing_file_is_said_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ("--rules", "--plan"):
        assert invoke(["plan", "nothing.py:f", option, str(tmp_path / "missing")]) == 2
        text = capsys.readouterr().err
        assert "error[E102]: cannot read the" in text and "missing" in text and "nothing.py" not in text


def test_a_damaged_file_and_a_bad_bound(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('forbit = [["a", "b"]]\n')
    assert invoke(["plan", model, "--rules", str(rules)]) == 2
    text = capsys.readouterr().err
    assert "error[E110]" in text and "did you mean forbid?" in text and "rules.toml" in text
    assert invoke(["plan", model, "--tau", "ulp=-1"]) == 2
    assert "no bound" in capsys.readouterr().err
