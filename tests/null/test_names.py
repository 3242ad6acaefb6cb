"""Finding operators by the user's names for them; graphs as JSON."""

from __future__ import annotations

import json

import pytest

from fusebound.errors import FormatError, UsageError
from fusebound.ir.builder import Builder
from fusebound.ir.graph import Graph, Source
from fusebound.ir.json import dump, load
from fusebound.ir.names import find


def _graph() -> Graph:
    b = Builder("net")
    x = b.input("x", (4,), "float32")
    for name, scope in (
        ("gelu", "layers.0.mlp.act"),
        ("add", "layers.0"),
        ("add", "layers.1"),
        ("softmax", ""),
        ("silu_1", ""),
    ):
        b.begin(name)
        m = b.emit("abs", x)
        x = b.emit("exp", m)
        b.end(f"aten.{name}", (), (), (x,), "pointwise", scope=scope, source=Source("net.py", 3, "…"))
    return b.finish((x,))


@pytest.mark.parametrize(
    "asked, found",
    [
        ("softmax", "softmax"),
        ("add_1", "add_1"),
        ("gelu.1", "gelu"),
        ("layers.0.mlp.act", "gelu"),
        ("layers.0.mlp", "gelu"),
        ("layers.1", "add_1"),
        ("layers.0/gelu", "gelu"),
        ("layers/add_1", "add_1"),
        ("silu", "silu_1"),
    ],
)
def test_names_paths_and_primitives_find_their_operator(asked: str, found: str) -> None:
    assert find(_graph(), asked).name == found


def test_a_misspelt_name_is_answered_with_close_ones() -> None:
    with pytest.raises(UsageError) as e:
        find(_graph(), "sofmax")
    assert e.value.hint == "did you mean softmax?"
    with pytest.raises(UsageError) as e:
        find(_graph(), "layer.0.mlp.act")
    assert "layers.0.mlp.act" in e.value.hint


def test_an_ambiguous_path_lists_its_operators() -> None:
    with pytest.raises(UsageError) as e:
        find(_graph(), "layers.0")
    assert "gelu (net.py:3) in layers.0.mlp.act" in e.value.what
    assert "add (net.py:3) in layers.0" in e.value.what
    with pytest.raises(UsageError, match="names 2 operators"):
        find(_graph(), "layers/add")


def test_a_wrong_operator_of_a_right_module_lists_the_module() -> None:
    with pytest.raises(UsageError) as e:
        find(_graph(), "layers.0/relu")
    assert e.value.hint == "operators there: gelu, add"


def test_far_names_list_what_there_is() -> None:
    with pytest.raises(UsageError) as e:
        find(_graph(), "qqq")
    assert e.value.hint == "operators: gelu, add, add_1, softmax, silu_1"


def test_json_round_trips_through_bytes() -> None:
    g = _graph()
    assert load(json.loads(json.dumps(dump(g)))) == g
    assert dump(g)["format"] == "fusebound.graph/1"


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"format": "fusebound.plan/1"},
        {"format": "fusebound.graph/1"},
        {"format": "fusebound.graph/1", "text": [3]},
    ],
)
def test_other_json_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(FormatError):
        load(data)


def test_damaged_text_names_its_line() -> None:
    data = dump(_graph())
    data["text"] = [*data["text"][:-1], "return %%"]  # type: ignore[index]
    with pytest.raises(FormatError, match="unexpected character"):
        load(data)
