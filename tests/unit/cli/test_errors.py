"""Bad input: one diagnostic on stderr, nothing on stdout, exit code 2."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from fusebound.cli.main import invoke

MODEL = """
import torch

def f(x):
    return x.exp() + 1

def branches(x):
    if x.sum() > 0:
        return x + 1
    return x - 1

def raises():
    return 1 / 0

def two(x, w):
    return x + w

two.example_inputs = lambda: raises
f_with_bad_inputs = lambda x: x
f_with_bad_inputs.example_inputs = raises
number = 3
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bad") / "model.py"
    path.write_text(MODEL)
    return str(path)


def diagnostic(capfd: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one diagnostic that a command line ends in."""
    assert invoke(argv) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(re.findall(r"^error\[E\d{3}\]: ", err, re.M)) == 1
    assert "Traceback" not in err
    return err[err.index("error[") :]


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("rnu",), "E100", "did you mean `run`"),
        (("run",), "E100", "MODEL is missing"),
        (("run", "bert-layer", "--polcy", "none"), "E100", "--polcy"),
        (("run", "bert-layer", "--rounds", "many"), "E100", "--rounds"),
        (("plan", "bert-layr"), "E101", "did you mean `bert-layer`"),
        (("plan", "absent.json"), "E102", "no such file"),
        (("plan", "absent.py:f"), "E102", "no such file"),
        (("plan", "absent.pt2"), "E102", "no such file"),
        (("plan", "no.such.module:f"), "E102", "no module `no`"),
        (("plan", "{model}"), "E103", "model.py:name"),
        (("plan", "{model}:branch", "--shape", "4"), "E101", "did you mean `branches`"),
        (("plan", "{model}:number", "--shape", "4"), "E101", "not callable"),
        (("plan", "{model}:f"), "E103", "example_inputs"),
        (("plan", "{model}:f", "--shape", "4,x"), "E105", "4,x"),
        (("plan", "{model}:f", "--shape", "4", "--dtype", "float31"), "E105", "float31"),
        (("plan", "{model}:f_with_bad_inputs"), "E104", "model.py:13"),
        (("plan", "residual-layernorm-gelu", "--hardware", "a101"), "E101", "did you mean `a100`"),
        (("plan", "residual-layernorm-gelu", "--policy", "tiles"), "E101", "'tile'"),
        (("textbook", "--hardware", "a101"), "E101", "a100"),
        (("why", "{model}:f", "exp", "ad", "--shape", "4"), "E101", "did you mean add"),
        (("explain", "F99999"), "E101", "F99999"),
        (("log", "{model}:f", "--shape", "4", "--code", "F999"), "E101", "F999"),
        (("log", "{model}:f", "--shape", "4", "--code", "E101"), "E101", "E101"),
        (("plan", ""), "E101", "MODEL is empty"),
        (("plan", "{model}:"), "E101", "names nothing to run"),
        (("plan", ":f"), "E101", "names no file"),
        (("plan", "/etc"), "E106", "that is a directory"),
        (("plan", "{model}:Nope"), "E101", "defined there: f, branches, raises"),
        (("plan", "{model}:f", "--shape", "4", "--shape", "4"), "E103", "2 shapes for 1 argument (x)"),
        (("plan", "{model}:two", "--shape", "4"), "E103", "1 shape for 2 arguments (x, w)"),
        (("plan", "{model}:two"), "E103", "example inputs for 2 arguments (x, w)"),
        (("plan", "{model}:f_with_bad_inputs", "--dtype", "bf16"), "E105", "--shape"),
        (("bench",), "E100", "--all"),
    ],
)
def test_usage(
    capfd: pytest.CaptureFixture[str], model: str, argv: tuple[str, ...], code: str, words: str
) -> None:
    text = diagnostic(capfd, *(a.replace("{model}", model) for a in argv))
    assert text.startswith(f"error[{code}]")
    assert words in text


@pytest.mark.parametrize(("variable", "value"), [("FB_THREADS", "abc"), ("FB_EXPECTED_CALLS", "-3")])
def test_a_variable_that_cannot_be_used_is_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, model: str, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    text = diagnostic(capfd, "plan", f"{model}:f", "--shape", "4")
    assert f"Invalid value for {variable} (as --" in text and value in text


def test_without_a_command_there_is_plain_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert invoke([]) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("Usage: fusebound") and "error[" not in err


def test_a_saved_plan_has_its_shapes(capfd: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    assert invoke(["plan", f"{model}:f", "--shape", "4", "--save", path]) == 0
    capfd.readouterr()
    text = diagnostic(capfd, "plan", path, "--shape", "3,3")
    assert text.startswith("error[E105]") and "the shapes of a saved program are fixed" in text


def test_a_branch_on_a_value_names_the_users_line(capfd: pytest.CaptureFixture[str], model: str) -> None:
    text = diagnostic(capfd, "run", f"{model}:branches", "--shape", "4")
    assert text.startswith("error[E2")
    assert "model.py:8" in text


def test_an_unknown_operator_gets_the_known_ones(capfd: pytest.CaptureFixture[str], model: str) -> None:
    text = diagnostic(capfd, "why", f"{model}:f", "exq", "add", "--shape", "4")
    assert "exp" in text


def test_a_plan_of_another_graph(capfd: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    assert invoke(["plan", f"{model}:f", "--shape", "4", "--save", path]) == 0
    assert invoke(["plan", f"{model}:f", "--shape", "4", "--plan", path]) == 0
    capfd.readouterr()
    text = diagnostic(capfd, "verify", f"{model}:f", "--shape", "5", "--plan", path)
    assert "another graph" in text


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": "fusebound.plan/1"}', '{"inputs": 1}'])
def test_damaged_json(capfd: pytest.CaptureFixture[str], tmp_path: Path, content: str) -> None:
    path = tmp_path / "damaged.json"
    path.write_text(content)
    diagnostic(capfd, "plan", str(path))


@pytest.mark.parametrize(
    "target",
    [
        "torch.load",
        "torch.hub.load",
        "os.system",
        "aten:aten.from_file.default",
        "method:numpy",
        "operator.methodcaller",
    ],
)
def test_a_region_may_name_operators_only(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, target: str
) -> None:
    record = {
        "inputs": [{"name": "x", "shape": [2], "dtype": "float32", "stride": [1]}],
        "nodes": [{"name": "y", "target": target, "args": [{"$": "x"}], "kwargs": {}}],
        "outputs": ["y"],
    }
    path = tmp_path / "region.json"
    path.write_text(json.dumps(record))
    text = diagnostic(capfd, "plan", str(path))
    assert target in text and "is not an operator" in text


class Payload:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("payload-was-run"),)


def _archive(path: Path, change: dict[str, bytes]) -> None:
    """An exported program with some of its files replaced or added."""
    clean = path.with_name("clean.pt2")
    torch.export.save(torch.export.export(torch.nn.GELU(), (torch.randn(4),), strict=False), clean)
    with zipfile.ZipFile(clean) as source, zipfile.ZipFile(path, "w") as target:
        root = source.namelist()[0].partition("/")[0]
        for name in source.namelist():
            target.writestr(name, change.pop(name.partition("/")[2], source.read(name)))
        for name, content in change.items():
            target.writestr(f"{root}/{name}", content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data/sample_inputs/model.pt", pickle.dumps(Payload())),
        ("data/aotinductor/model/wrapper.so", b"\x7fELF"),
        ("models/model.json", b'{"target": "os.system.run"}'),
        ("models/model.json", b'{"expr_str": "__import__(\'os\')"}'),
        ("models/model.json", b'{"expr_str": "open(0)"}'),
        ("data/weights/model_weights_config.json", b'{"config": {"w": {"use_pickle": true}}}'),
    ],
)
def test_an_archive_that_would_run_code_is_refused(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    content: bytes,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.pt2"
    _archive(path, {name: content})
    text = diagnostic(capfd, "plan", str(path))
    assert text.startswith("error[E107]") and "--trust" in text
    assert not Path("payload-was-run").exists()


@pytest.mark.parametrize("cut", [0, 100, -50])
def test_a_corrupt_archive(capfd: pytest.CaptureFixture[str], tmp_path: Path, cut: int) -> None:
    whole, path = tmp_path / "whole.pt2", tmp_path / "cut.pt2"
    _archive(whole, {})
    path.write_bytes(whole.read_bytes()[:cut])
    assert diagnostic(capfd, "plan", str(path)).startswith("error[E110]")


def test_a_fault_of_ours_is_one_diagnostic_and_a_traceback_with_debug(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def boom(*_: object, **__: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr("fusebound.scenarios.build", boom)
    text = diagnostic(capfd, "plan", "bert-layer")
    assert text.startswith("error[E000]: ZeroDivisionError: boom")
    assert invoke(["plan", "bert-layer", "--debug"]) == 2
    assert "Traceback" in capfd.readouterr().err


def test_every_error_code_in_the_source_has_a_page() -> None:
    from fusebound.cli.explain import pages

    source = Path(__file__).parents[3] / "src"
    used = {c for p in source.rglob("*.py") for c in re.findall(r'"(E\d{3})"', p.read_text(encoding="utf-8"))}
    assert used - set(pages()) == set()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--save", "/nonexistent/plan.json"), "E100"),
        (("--shape", "99999999999999999999"), "E105"),
        (("--shape", "1000000000000000"), "E105"),
        (("--shape", "4", "--tau", "nan"), "E100"),
    ],
)
def test_values_that_no_machine_can_take(
    arguments: tuple[str, ...], code: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = () if "--shape" in arguments else ("--shape", "4")
    assert invoke(["plan", f"{model}:f", *shape, *arguments]) == 2
    assert f"error[{code}]" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["9" * 10_000, "[" * 200_000])
def test_json_that_python_cannot_hold(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    for command in (["plan", str(path)], ["diff", str(path), str(path)]):
        assert invoke(command) == 2
        assert "error[E110]" in capsys.readouterr().err


def test_code_that_ends_the_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ends.py"
    path.write_text("import sys\nsys.exit(0)\n")
    assert invoke(["plan", f"{path}:f"]) == 2
    assert "error[E104]" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv", [("explain", "F501"), ("explain", "--format", "json"), ("--help",), ("rnu",)]
)
def test_a_closed_pipe_ends_a_command_quietly(argv: tuple[str, ...]) -> None:
    """Neither the user's code nor the interpreter at its exit is said to fail; `rnu` has only stderr to say."""
    reader, writer = os.pipe()
    os.close(reader)
    out, err = (subprocess.PIPE, writer) if argv == ("rnu",) else (writer, subprocess.PIPE)
    done = subprocess.run([sys.executable, "-m", "fusebound", *argv], stdout=out, stderr=err, check=False)
    os.close(writer)
    assert (done.returncode, done.stdout or b"", done.stderr or b"") == (0, b"", b"")
