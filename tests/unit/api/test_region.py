"""Region records: rebuilt as they were, shapes and strides included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fusebound.api.inputs import span
from fusebound.api.records import from_json
from fusebound.api.region import from_region
from fusebound.api.resize import leading, resized
from fusebound.errors import FormatError

RECORD = {
    "inputs": [
        {
            "name": "x",
            "shape": [2, 3, 4, 4],
            "dtype": "float32",
            "stride": [48, 1, 12, 3],
            "mean": 5.0,
            "std": 0.5,
        },
        {"name": "mean", "shape": [3], "dtype": "float32", "stride": [1]},
        {"name": "var", "shape": [3], "dtype": "float32", "stride": [1]},
        {"name": "n", "scalar": 2},
    ],
    "nodes": [
        {
            "name": "y",
            "target": "torch.nn.functional.batch_norm",
            "args": [{"$": "x"}, {"$": "mean"}, {"$": "var"}],
            "kwargs": {},
        },
        {"name": "z", "target": "operator.mul", "args": [{"$": "y"}, {"$": "n"}], "kwargs": {}},
        {"name": "s", "target": "method:softmax", "args": [{"$": "z"}, 1], "kwargs": {}},
        {"name": "c", "target": "method:to", "args": [{"$": "s"}, {"dtype": "torch.bfloat16"}], "kwargs": {}},
    ],
    "outputs": ["c", "z"],
}


def test_a_record_is_rebuilt() -> None:
    model = from_region(RECORD, "r")
    x, _, var, n = model.args
    assert x.stride() == (48, 1, 12, 3) and n == 2
    assert 4.5 < x.mean() < 5.5 and x.std() < 1
    assert (var > 0).all()
    c, z = model.fn(*model.args)
    assert c.dtype == torch.bfloat16
    torch.testing.assert_close(c, z.softmax(1).bfloat16())


def test_it_is_seeded_and_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(RECORD))
    again = from_json(tmp_path / "r.json")
    assert torch.equal(again.args[0], from_region(RECORD, "r").args[0])


def test_overlapping_strides_take_as_much_memory_as_they_touch() -> None:
    assert span((4, 3), (1, 1)) == 6
    assert span((0, 3), (3, 1)) == 0
    record = {
        "inputs": [{"name": "x", "shape": [4, 3], "dtype": "int64", "stride": [0, 1]}],
        "nodes": [],
        "outputs": ["x"],
    }
    (x,) = from_region(record, "r").args
    assert x.stride() == (0, 1) and x.untyped_storage().nbytes() == 3 * 8


def test_resizing_cuts_and_repeats_the_leading_axis() -> None:
    model = from_region(RECORD, "r")
    assert leading(model) == 2
    assert [a.shape[0] for a in resized(model, 5).args[:3]] == [5, 3, 3]
    assert torch.equal(resized(model, 5).args[0][4], model.args[0][0])


@pytest.mark.parametrize("place", ["input", "keyword"])
def test_names_do_not_become_code(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.fx writes arguments' names into Python text as they stand."""
    monkeypatch.chdir(tmp_path)
    record = json.loads(json.dumps(RECORD))
    evil = "x=__import__('os').mkdir('payload-was-run')"
    if place == "input":
        record["inputs"][0]["name"] = record["nodes"][0]["args"][0]["$"] = evil
    else:
        record["nodes"][0]["kwargs"] = {evil: 1}
    (tmp_path / "r.json").write_text(json.dumps(record))
    with pytest.raises(FormatError, match="no name for an argument") as e:
        from_json(tmp_path / "r.json")
    assert str(tmp_path / "r.json") in e.value.where
    assert not Path("payload-was-run").exists()


def test_all_regions_of_the_corpus_run(shared: Path) -> None:
    paths = sorted((shared / "corpus" / "regions").glob("*.json"))[::12]
    assert paths
    for path in paths:
        model = from_json(path)
        assert len(model.fn(*model.args)) == len(json.loads(path.read_text())["outputs"])
