"""Graphs as JSON-ready dicts: the text form, line by line, under a `format` field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from fusebound.errors import FormatError
from fusebound.ir.graph import Graph
from fusebound.ir.spec import verify
from fusebound.ir.text import parse_graph, print_graph

FORMAT = "fusebound.graph/1"


def dump(g: Graph) -> dict[str, object]:
    """A dict of strings and lists that `load` reads back to an equal graph."""
    return {"format": FORMAT, "text": print_graph(g).split("\n")[:-1]}


def load(data: Mapping[str, object]) -> Graph:
    """The graph in a dict made by `dump`. Raises FormatError for another format or damaged text, GraphError for a
    graph that breaks a rule."""
    if data.get("format") != FORMAT:
        raise FormatError(f"format is {data.get('format')!r}, expected {FORMAT!r}", where="field 'format'")
    text = data.get("text")
    if not isinstance(text, list) or not all(isinstance(line, str) for line in cast(list[object], text)):
        raise FormatError("the graph's text is not a list of lines", where="field 'text'")
    graph = parse_graph("\n".join(cast(list[str], text)))
    verify(graph)
    return graph
