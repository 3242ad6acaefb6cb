"""`.pt2` archives that attack: a payload in every place from which torch would run it.

Where a test can show it, `trust` runs the payload, so that a test that sees nothing run has seen an attack refused.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fusebound as fb
from fusebound.api.sizes import is_size
from fusebound.errors import FormatError, FuseboundError, UsageError

MARK = "payload-was-run"


class Payload:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return os.mkdir, (MARK,)  # type: ignore[return-value]


class Program(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.table = torch.arange(4.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight + self.table).relu()


def pickled() -> bytes:
    """As long as a tensor of its length could be."""
    made = pickle.dumps(Payload(), protocol=2)
    return made + bytes(-len(made) % 8)


def saved(path: Path) -> list[tuple[str, bytes]]:
    """The files of a clean archive."""
    torch.export.save(torch.export.export(Program(), (torch.randn(2, 4),), strict=False), path)
    with zipfile.ZipFile(path) as archive:
        return [(n, archive.read(n)) for n in archive.namelist()]


def write(path: Path, files: list[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files:
            archive.writestr(name, content)
    return path


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    monkeypatch.chdir(tmp_path)
    return saved(tmp_path / "clean.pt2")


Files = list[tuple[str, bytes]]


def with_file(files: Files, name: str, content: bytes) -> Files:
    """With one file replaced or added."""
    root = files[0][0].partition("/")[0]
    return [(n, c) for n, c in files if n != f"{root}/{name}"] + [(f"{root}/{name}", content)]


def with_config(files: Files, kind: str, **changes: Any) -> Files:
    """With the first weight or constant described differently, and the pickle where it then says."""
    name = f"data/{kind}/model_{kind}_config.json"
    config = json.loads(next(c for n, c in files if n.endswith(name)))
    entry = next(iter(config["config"].values()))
    entry.update(changes)
    changed = with_file(files, name, json.dumps(config).encode())
    return with_file(changed, f"data/{kind}/{entry['path_name']}", pickled())


def with_program(files: Files, change: Callable[[Any], None]) -> Files:
    program = json.loads(next(c for n, c in files if n.endswith("models/model.json")))
    change(program)
    return with_file(files, "models/model.json", json.dumps(program).encode())


def old_format(_: Files) -> Files:
    names = ("exported_program.json", "state_dict.pt", "constants.pt", "example_inputs.pt")
    return [("version", b"8.15"), *((f"serialized_{n}", pickled()) for n in names)]


PICKLES: dict[str, Callable[[Files], Files]] = {
    "sample inputs": lambda f: with_file(f, "data/sample_inputs/model.pt", pickled()),
    "weights of the former format": lambda f: with_file(f, "data/weights/model.pt", pickled()),
    "constants of the former format": lambda f: with_file(f, "data/constants/model.pt", pickled()),
    "a weight": lambda f: with_config(f, "weights", use_pickle=True),
    "a constant": lambda f: with_config(f, "constants", use_pickle=True),
    "an opaque object": lambda f: with_config(f, "constants", use_pickle=False, path_name="opaque_obj_0"),
    "the oldest format": old_format,
}


@pytest.mark.parametrize("place", PICKLES)
def test_a_pickle_is_refused_and_not_run(clean: Files, tmp_path: Path, place: str) -> None:
    path = write(tmp_path / "evil.pt2", PICKLES[place](clean))
    with pytest.raises(UsageError, match="pickled") as e:
        fb.load(path)
    assert e.value.code == "E107" and str(path) in e.value.where
    assert not Path(MARK).exists()
    if place != "the oldest format":  # whose program would have to be whole before its pickles are read
        with pytest.raises(FuseboundError):
            fb.load(path, trust=True)
        assert Path(MARK).exists(), "the attack is no attack"


def test_a_torchbind_object_is_refused(clean: Files, tmp_path: Path) -> None:
    files = with_config(clean, "constants", use_pickle=False, path_name="custom_obj_0")
    with pytest.raises(UsageError, match="pickled") as e:
        fb.load(write(tmp_path / "evil.pt2", files))
    assert e.value.code == "E107"


SAMPLES = "data/sample_inputs/model.pt"


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["other/" + SAMPLES, "{root}/" + SAMPLES])
@pytest.mark.parametrize("first", [True, False])
def test_two_files_of_one_name(clean: Files, tmp_path: Path, name: str, first: bool) -> None:
    """Of one name, one reader takes the first file and another the last."""
    evil = (name.replace("{root}", clean[0][0].partition("/")[0]), pickled())
    files = [evil, *clean] if first else [*clean, evil]
    with pytest.raises(FormatError, match="several files of one name"):
        fb.load(write(tmp_path / "evil.pt2", files))
    assert not Path(MARK).exists()


@pytest.mark.parametrize("keep", [True, False])
def test_names_in_capitals(clean: Files, tmp_path: Path, keep: bool) -> None:
    """torch's reader does not tell capitals apart."""
    root = clean[0][0].partition("/")[0]
    files = [(n, c) for n, c in clean if keep or not n.endswith(SAMPLES)]
    path = write(tmp_path / "evil.pt2", [(f"{root}/{SAMPLES.upper()}", pickled()), *files])
    if keep:
        fb.load(path)
    else:
        with pytest.raises(FormatError):
            fb.load(path)
    assert not Path(MARK).exists()


CODE = f"__import__('os').mkdir('{MARK}')"


def renamed(old: str, new: str) -> Callable[[Any], Any]:
    def change(x: Any) -> Any:
        if isinstance(x, dict):
            return {new if k == old else k: change(v) for k, v in x.items()}
        if isinstance(x, list):
            return [change(v) for v in x]
        return new if x == old else x

    return change


def replaced(program: dict[str, Any], old: str, new: str) -> None:
    made = renamed(old, new)(program)
    program.clear()
    program.update(made)


def first_node(program: dict[str, Any]) -> dict[str, Any]:
    return program["graph_module"]["graph"]["nodes"][0]


def tree(program: dict[str, Any], spec: dict[str, Any]) -> None:
    leaf = {"type": None, "context": None, "children_spec": []}
    for call in program["graph_module"]["module_call_graph"]:
        if call["signature"]:
            call["signature"]["out_spec"] = json.dumps([1, spec | {"children_spec": [leaf]}])


TEXTS: dict[str, Callable[[Any], None]] = {
    "a value's name": lambda p: replaced(p, "mul", f"mul = {CODE}; y"),
    "an input's name": lambda p: replaced(p, "x", f"x={CODE}"),
    "a parameter's name": lambda p: replaced(
        p, "weight", 'w" if eval("' + CODE.replace(".", "\\x2e") + '") else "w'
    ),
    "an operator that loads a library": lambda p: first_node(p).update(target="torch.ops.load_library"),
    "an operator that imports": lambda p: first_node(p).update(target="torch.ops.import_module"),
    "an operator that writes a file": lambda p: first_node(p).update(target="torch.ops.aten.save.default"),
    "an operator that reads a file": lambda p: first_node(p).update(
        target="torch.ops.aten.from_file.default"
    ),
    "a function of Python": lambda p: first_node(p).update(target="_operator.attrgetter"),
    "a function of torch": lambda p: first_node(p).update(target="torch.hub.load"),
    "a higher-order operator": lambda p: first_node(p).update(target="torch.ops.higher_order.call_torchbind"),
    "a structure with a factory": lambda p: tree(
        p,
        {
            "type": "collections.defaultdict",
            "context": {
                "default_factory_module": "evil_module",
                "default_factory_name": "x",
                "dict_context": ["a"],
            },
        },
    ),
    "a structure with an enumeration": lambda p: tree(
        p,
        {
            "type": "builtins.dict",
            "context": json.dumps([{"__enum__": True, "fqn": "evil_module:x", "name": "y"}]),
        },
    ),
    "a structure's key": lambda p: tree(p, {"type": "builtins.dict", "context": json.dumps([CODE])}),
}


@pytest.mark.parametrize("place", TEXTS)
def test_text_that_would_become_code(
    clean: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "evil_module.py").write_text(f"{CODE}\nx = dict\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    with pytest.raises(UsageError) as e:
        fb.load(write(tmp_path / "evil.pt2", with_program(clean, TEXTS[place])))
    assert e.value.code == "E107" and "models/model.json" in e.value.where
    assert not Path(MARK).exists() and "evil_module" not in sys.modules


@pytest.mark.parametrize("place", ["an input's name", "a structure with a factory"])
def test_such_text_is_code_to_torch(
    clean: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "evil_module.py").write_text(f"{CODE}\nx = dict\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    path = write(tmp_path / "evil.pt2", with_program(clean, TEXTS[place]))
    try:
        fb.load(path, trust=True)
    except FuseboundError:
        pass
    finally:
        sys.modules.pop("evil_module", None)
    assert Path(MARK).exists(), "the attack is no attack"


def test_guards_are_left_out(clean: Files, tmp_path: Path) -> None:
    files = with_program(clean, lambda p: p.update(guards_code=[CODE]))
    assert len(fb.load(write(tmp_path / "m.pt2", files)).user_ops) == 3
    assert not Path(MARK).exists()


def test_a_bomb(clean: Files, tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in clean:
            archive.writestr(name, content)
        archive.writestr(f"{clean[0][0].partition('/')[0]}/data/weights/weight_9", bytes(1 << 27))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(FormatError, match="would unpack to"):
        fb.load(path)


def test_a_tensor_that_the_archive_does_not_hold(clean: Files, tmp_path: Path) -> None:
    """torch makes zeros of whatever size an empty file is said to have."""
    files = with_config(clean, "weights")
    files = with_file(files, "data/weights/weight_0", b"")
    name = "data/weights/model_weights_config.json"
    config = json.loads(next(c for n, c in files if n.endswith(name)))
    config["config"]["weight"]["tensor_meta"]["sizes"] = [{"as_int": 10**12}]
    with pytest.raises(UsageError, match="without its values"):
        fb.load(write(tmp_path / "evil.pt2", with_file(files, name, json.dumps(config).encode())))


def test_files_that_climb_out_are_not_unpacked(clean: Files, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = write(tmp_path / "in" / "m.pt2", [*clean, ("../climbed", b"x"), ("a/../../climbed", b"x")])
    fb.load(path)
    assert not list(tmp_path.rglob("climbed"))


@pytest.mark.parametrize(
    "text",
    [
        "10**10**10",
        "PowByNatural(10, PowByNatural(10, 10))",
        "Pow(Pow(Pow(Integer(10), Integer(16)), Integer(16)), Integer(16))",
        "LShift(1, 10**18)",
        "1 << s0",
        "2**s0",
        "+".join(["s0"] * 10_000),
    ],
)
def test_sizes_that_take_for_ever_are_none(text: str) -> None:
    assert not is_size(text)


def test_powers_of_sizes_are() -> None:
    assert is_size("s0**2 + PowByNatural(Symbol('s1', integer=True), Integer(3))")
