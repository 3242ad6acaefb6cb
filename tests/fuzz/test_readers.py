"""Every reader, given damaged files: an object that plans, builds and runs, or one error that names the file.

`FB_EXAMPLES=20000 pytest tests/fuzz` looks further; `mutant(format, seed)` makes the file of a failure again.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import tomllib
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from tests.fuzz import samples
from tests.fuzz.mutants import damaged_bytes, damaged_json, damaged_lines

import fusebound as fb
from fusebound.api.origin import recall
from fusebound.api.records import from_json
from fusebound.engine.build import build
from fusebound.errors import BuildError, CaptureError, FormatError, FuseboundError, GraphError, UsageError
from fusebound.files import read_text
from fusebound.gates.rules import read_rules
from fusebound.plan.plan import Plan
from fusebound.report.schema import Report
from fusebound.target.record import load_record

EXAMPLES = int(os.environ.get("FB_EXAMPLES", "100"))
SECONDS = 5
MARK = Path("payload-was-run")
SMALL = 1 << 16
"""Elements of a value up to which an accepted program is run."""


def _read_graph(path: Path) -> None:
    model = from_json(path)
    graph = fb.load(path)
    if all(v.numel <= SMALL for v in graph.values.values()):
        plan = model.plan or fb.plan(graph, hardware="cpu-avx512", expected_calls=10**6)
        with contextlib.suppress(
            IndexError, RuntimeError
        ):  # what eager raises too: an index, a negative probability
            build(plan, recall(plan.graph))(*model.args)


def _read_record(path: Path) -> None:
    load_record(read_text(path, "the record"), where=str(path))


READERS: dict[str, Callable[[Path], object]] = {
    "graph.json": _read_graph,
    "plan.json": _read_graph,
    "region.json": _read_graph,
    "program.pt2": fb.load,
    "rules.toml": read_rules,
    "report.json": lambda path: str(Report.load(path)),
    "record.json": _read_record,
}
SHARES = {"graph.json": 6, "plan.json": 6, "region.json": 6, "program.pt2": 2}
"""Of 23 examples; the others one each."""


@cache
def sources(name: str) -> list[Any]:
    """Valid contents of a format, as plain data; the files of a `.pt2` archive."""
    match name:
        case "graph.json":
            return samples.graph_files()
        case "plan.json":
            return samples.plan_files()
        case "region.json":
            return [samples.REGION]
        case "program.pt2":
            return [samples.archive_files()]
        case "rules.toml":
            return [tomllib.loads(samples.RULES)]
        case "report.json":
            return [samples.report_file()]
        case _:
            return [samples.record_file()]


def mutant(name: str, seed: int) -> bytes:
    """The damaged file of a seed."""
    r = Random(f"{name} {seed}")
    source = r.choice(sources(name))
    if name == "program.pt2":
        return _archive(r, source)
    if name == "rules.toml" and r.random() < 0.5:
        return damaged_bytes(r, samples.RULES.encode())
    kind = r.random()
    if kind < 0.2:
        return damaged_bytes(r, json.dumps(source).encode())
    field = {"graph.json": "text", "plan.json": "graph"}.get(name)
    if field is not None and kind < 0.8:
        return json.dumps(source | {field: damaged_lines(r, source[field])}).encode()
    data = damaged_json(r, source)
    return (
        samples.toml(data).encode("utf-8", "replace") if name == "rules.toml" else json.dumps(data).encode()
    )


def _archive(r: Random, files: dict[str, bytes]) -> bytes:
    files = dict(files)
    if r.random() < 0.3:
        return damaged_bytes(r, _zipped(files))
    name = r.choice([n for n in files if not n.startswith("archive/.data")])
    if name.endswith(".json") and r.random() < 0.8:
        files[name] = json.dumps(damaged_json(r, json.loads(files[name]))).encode()
    else:
        files[name] = damaged_bytes(r, files[name])
    return _zipped(files)


def _zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """TimeoutError after some seconds."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(name: str, path: Path) -> str:
    """ "read" or "refused"; anything else is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with limited(SECONDS):
                READERS[name](path)
        except FuseboundError as error:
            named = str(path) in error.where or isinstance(error, CaptureError | BuildError)
            assert named or error.code in ("E120", "E123"), f"where is {error.where!r}: {error}"
            return "refused"
    return "read"


@pytest.mark.parametrize("name", READERS)
def test_damaged_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    path = tmp_path / name
    outcomes = set()
    for seed in range(max(EXAMPLES * SHARES.get(name, 1) // 23, 4)):
        path.write_bytes(mutant(name, seed))
        try:
            outcomes.add(outcome(name, path))
        except Exception as error:
            error.add_note(f"seed {seed} of {name}")
            raise
        assert not MARK.exists(), f"seed {seed} of {name} ran a payload"
    assert "refused" in outcomes


@pytest.mark.parametrize("name", READERS)
def test_the_files_are_whole_before(name: str, tmp_path: Path) -> None:
    for source in sources(name):
        path = tmp_path / name
        if name == "program.pt2":
            path.write_bytes(_zipped(source))
        else:
            path.write_text(samples.toml(source) if name == "rules.toml" else json.dumps(source))
        assert outcome(name, path) == "read"


@pytest.mark.parametrize(
    ("old", "new", "code", "what"),
    [
        ("aten.mul_.Tensor", "aten.save.default", "E113", "may be run"),
        ("higher_order.cond", "higher_order.nope", "E113", "may be run"),
        ("f32[3, 4]", "f32[3, 40000000000000]", "E110", "larger than memory"),
        ("f32[3, 4]", "f32[3, 4] strides [-4, 1]", "E110", "negative size or stride"),
    ],
)
def test_lies_of_a_graph(tmp_path: Path, old: str, new: str, code: str, what: str) -> None:
    """What gates and kernels rely on is not believed because a file says it."""
    source = samples.graph_files()[1]
    lines = [line.replace(old, new) for line in source["text"]]
    assert lines != source["text"]
    (tmp_path / "g.json").write_text(json.dumps(source | {"text": lines}))
    with pytest.raises(FuseboundError, match=what) as e:
        fb.load(tmp_path / "g.json")
    assert str(tmp_path / "g.json") in e.value.where and e.value.code == code


def test_an_operator_that_gives_another_shape_than_the_graph_says(tmp_path: Path) -> None:
    """A kernel that read 3 million elements of a matrix of nine would end the process."""
    text = [
        'fusebound.graph 1 "lie"',
        '%x = input user "x" : f32[3, 3]',
        "mm: aten.mm.default(%x, %x) -> %mm contract",
        "  %mm = aten.mm.default(%x, %x) : f32[1000, 3000]",
        "exp: aten.exp.default(%mm) -> %exp pointwise",
        "  %exp = exp(%mm) : f32[1000, 3000]",
        "return %exp",
    ]
    (tmp_path / "g.json").write_text(json.dumps({"format": "fusebound.graph/1", "text": text}))
    with pytest.raises(GraphError, match=r"mm gives float32\[3, 3\], the graph says float32\[1000, 3000\]"):
        fb.load(tmp_path / "g.json")


def test_a_region_that_asks_for_more_than_memory(tmp_path: Path) -> None:
    record = {"inputs": [{"name": "x", "shape": [10**12], "dtype": "float32", "stride": [1]}], "nodes": [],
              "outputs": ["x"]}  # fmt: skip
    (tmp_path / "r.json").write_text(json.dumps(record))
    with pytest.raises(UsageError, match="does not fit into this machine"):
        fb.load(tmp_path / "r.json")


def test_a_plan_is_read_from_the_path_that_it_names(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as e:
        Plan.load(tmp_path / "p.json")
    assert e.value.where == str(tmp_path / "p.json")
