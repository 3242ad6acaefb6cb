"""Commands, run in process on small models: what they print, where, and how they exit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.faults import wrong_operator

from fusebound.cli.main import COMMANDS, invoke

MODEL = """
import torch

def scaled(x, w):
    y = torch.softmax(x * 2, -1)
    return y * w

def example_inputs():
    return torch.linspace(-3, 3, 64 * 96).reshape(64, 96), torch.linspace(0, 1, 96)

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(96)

    def forward(self, x):
        return torch.relu(self.norm(x)) + x

    def example_inputs(self):
        return torch.linspace(-3, 3, 64 * 96).reshape(64, 96)

def keyword(*, x):
    return x.exp() + 1

keyword.example_inputs = lambda: {"x": torch.ones(8, 8)}

def branches(x):
    if x.sum() > 0:
        return x + 1
    return x - 1

number = 3
"""

PLANNED = ("--hardware", "cpu-avx512", "--expected-calls", "100000000")
"""A named target and many calls: plans do not depend on this machine, and compiling always pays."""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("user") / "model.py"
    path.write_text(MODEL)
    return str(path)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*argv: str) -> tuple[int, str, str]:
        code = invoke(argv)
        out, err = capfd.readouterr()
        return code, out, err

    return call


def test_plan_prints_the_groups(run: Run, model: str) -> None:
    code, out, err = run("plan", f"{model}:scaled", *PLANNED)
    assert code == 0
    assert "mul, softmax, mul_1 (model.py:5-6)" in " ".join(out.split())
    assert "3 → 1" in out
    assert "capture" in err and "capture" not in out
    assert "\x1b" not in out


def test_plan_in_json_is_a_plan_that_is_a_model_again(run: Run, model: str, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    _, out, _ = run("plan", f"{model}:scaled", *PLANNED, "--format", "json", "--save", path)
    assert json.loads(out) == json.loads(Path(path).read_text())
    code, again, _ = run("plan", path, *PLANNED, "--format", "csv")
    assert code == 0
    header, *rows = again.splitlines()
    assert header.startswith("group,kind,operators")
    assert len(rows) == 1


def test_diff_of_two_policies(run: Run, model: str, tmp_path: Path) -> None:
    left, right = str(tmp_path / "l.json"), str(tmp_path / "r.json")
    run("plan", f"{model}:scaled", *PLANNED, "--save", left)
    run("plan", f"{model}:scaled", *PLANNED, "--policy", "none", "--save", right)
    code, out, _ = run("diff", left, right, "--fail")
    assert code == 1
    assert "- group mul + softmax + mul_1" in out and "+ group softmax" in out
    assert run("diff", left, left, "--fail")[:2] == (0, "the plans are the same\n")


def test_why_answers_with_four_gates(run: Run, model: str) -> None:
    code, out, _ = run("why", f"{model}:scaled", "softmax", "mul_1", *PLANNED)
    assert code == 0
    for gate in ("dependence", "precision", "resources", "gain"):
        assert gate in out
    assert "one kernel" in out and "margin" in out
    _, data, _ = run("why", f"{model}:scaled", "softmax", "mul_1", *PLANNED, "--format", "json")
    found = json.loads(data)
    assert found["fused"] is True and set(found["gates"]) == {"dependence", "precision", "resources", "gain"}


def test_log_is_filtered_by_operator_and_gate(run: Run, model: str) -> None:
    everything = json.loads(run("log", f"{model}:scaled", *PLANNED, "--format", "json")[1])
    some = json.loads(run("log", f"{model}:scaled", *PLANNED, "--format", "json", "--operator", "mul_1")[1])
    assert [d for d in everything if "mul_1" in (d["a"], d["b"])] == some != []
    refused = json.loads(run("log", f"{model}:scaled", *PLANNED, "--format", "json", "--gate", "gain")[1])
    assert all(not d["accepted"] for d in refused)


@pytest.mark.parametrize("what", ["tile", "llvm", "asm"])
def test_kernel_shows_the_users_operators(run: Run, model: str, what: str) -> None:
    code, out, _ = run("kernel", f"{model}:scaled", "--what", what, "--expected-calls", "100000000")
    assert code == 0
    assert "softmax" in out
    assert len(out.splitlines()) > 10


def test_run_reports_everything(run: Run, model: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    code, out, err = run("run", f"{model}:Block", *PLANNED, "--rounds", "3", "--output", str(path))
    assert code == 0
    for part in ("launches", "error against fp64", "over eager", "time spent", "of operators", "on chip"):
        assert part in out
    for phase in ("load", "capture", "plan", "compile", "verify", "measure"):
        assert phase in err
    report = json.loads(path.read_text())
    assert report["ok"] is True
    assert [p["name"] for p in report["phases"]][-1] == "measure"
    assert report["groups"][0]["measured_us"] > 0


def test_verify_of_a_module_and_of_keyword_arguments(run: Run, model: str) -> None:
    assert run("verify", f"{model}:Block", "--expected-calls", "100000000")[0] == 0
    code, out, _ = run("verify", f"{model}:keyword", "--format", "csv", "--expected-calls", "100000000")
    assert code == 0
    assert out.startswith("group,output,set,ok")


def test_verify_finds_what_is_to_blame(
    run: Run, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong_operator(monkeypatch, "exp")
    script = tmp_path / "repro.py"
    code, out, _ = run(
        "verify", f"{model}:keyword", *PLANNED, "--bisect", "--output", str(script), "--format", "json"
    )
    culprit = json.loads(out)["culprit"]
    assert code == 1
    assert culprit["place"] == "the kernel of exp (model.py:23) alone" and culprit["shapes"] == ["[1, 1]"]
    assert culprit["script"] == str(script) and "torch.ops.aten.exp.default(x)" in script.read_text()


def test_bisect_of_what_passes_says_so(run: Run, model: str, tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    code, _, err = run("verify", f"{model}:keyword", *PLANNED, "--bisect", "--output", str(script))
    assert code == 0 and "nothing fails" in err and not script.exists()


def test_verify_at_boundary_shapes(run: Run, model: str) -> None:
    code, out, _ = run("verify", f"{model}:scaled", "--expected-calls", "100000000", "--boundary")
    assert code == 0
    words = " ".join(out.split())
    assert "last axis 17" in words and "transposed" in words


def test_sweep_at_two_sizes(run: Run, model: str) -> None:
    code, out, _ = run(
        "sweep", f"{model}:scaled", "--shape", "N,96", "--shape", "96", "--sizes", "8,64", "--rounds", "3",
        "--format", "json",
    )  # fmt: skip
    assert code == 0
    assert [p["size"] for p in json.loads(out)["points"]] == [8, 64]


def test_shapes_stand_in_for_example_inputs(run: Run, model: str) -> None:
    code, out, _ = run(
        "plan",
        f"{model}:scaled",
        "--shape",
        "16,32",
        "--shape",
        "32",
        "--dtype",
        "bf16",
        *PLANNED,
        "--format",
        "json",
    )
    assert code == 0
    assert "bf16[16, 32]" in out


def test_textbook_prints_its_table_and_what_tile_does(
    run: Run, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    code, out, _ = run("textbook", "--hardware", "cpu-avx512")
    assert code == 0
    assert "fail: t2 has two consumers" in out
    assert "no edge" in out
    assert "relu + add + softmax + mul" in out
    golden("textbook.txt", out)
    data = json.loads(run("textbook", "--hardware", "cpu-avx512", "--format", "json")[1])
    moved = {p["policy"]: p["bytes"] for p in data["policies"]}
    assert moved["tile"] < moved["textbook"] < moved["none"]


def test_archive_is_read(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "m.pt2")
    torch.export.save(torch.export.export(torch.nn.GELU(), (torch.randn(8, 8),), strict=False), path)
    code, out, err = run("plan", path, *PLANNED)
    assert code == 0, err
    assert "gelu" in out


def test_scenarios_are_listed(run: Run) -> None:
    code, out, _ = run("run", "--list")
    assert code == 0
    assert len(out.splitlines()) == 10 and "adamw-step" in out


def test_hardware_lists_and_shows(run: Run) -> None:
    assert "a100" in run("hardware", "list")[1]
    code, out, _ = run("hardware", "show", "cpu-avx512")
    assert code == 0 and "dram_bandwidth" in out and "GB/s" in out


def test_cache_is_found_listed_and_cleared(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("FB_CACHE_DIR", str(tmp_path))
    (tmp_path / "kernels").mkdir()
    for name in ("kernels/0a.o", "kernels/MANIFEST", "kernels/.0b.o.1.tmp", "calibration-x.json", "diary"):
        (tmp_path / name).write_text("x")
    assert run("cache", "path")[1] == f"{tmp_path}\n"
    assert [e["file"] for e in json.loads(run("cache", "list", "--format", "json")[1])] == [
        "calibration-x.json", "kernels/.0b.o.1.tmp", "kernels/0a.o", "kernels/MANIFEST",
    ]  # fmt: skip
    run("cache", "clear")
    assert not list((tmp_path / "kernels").iterdir()) and (tmp_path / "calibration-x.json").exists()
    run("cache", "clear", "--records")
    assert {p.name for p in tmp_path.iterdir()} == {"kernels", "diary"}, "what is not ours is left alone"


def test_doctor_tries_a_kernel(run: Run) -> None:
    code, out, _ = run("doctor")
    assert code == 0
    assert "torch" in out and "test kernel" in out and "right numbers" in out


def test_explain_lists_and_shows(run: Run) -> None:
    _, listed, _ = run("explain", "--format", "json")
    codes = json.loads(listed)
    assert {"F101", "F301", "E103"} <= set(codes)
    for code, title in codes.items():
        assert title, code
    assert run("explain", "f301")[1].startswith("# F301")


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help_that_says_more_than_its_summary(run: Run, command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert "Usage: fusebound" in out
