"""JSON files that MODEL may name, told apart by their `format`: a graph, a saved plan, a region record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fusebound.api.inputs import random_tensor
from fusebound.api.model import Model
from fusebound.api.region import from_region
from fusebound.errors import FormatError, FuseboundError, GraphError
from fusebound.ir import json as graph_json
from fusebound.ir.graph import Graph, hint
from fusebound.plan.plan import Plan
from fusebound.report import codec

GRAPH, PLAN = "fusebound.graph/", "fusebound.plan/"
REGION_FIELDS = ("inputs", "nodes", "outputs")


def from_json(path: Path) -> Model:
    """The program of a graph, plan or region file, with seeded inputs of its shapes, types and strides.

    Raises FormatError (E110), UsageError (E105) for inputs larger than memory; both name the file.
    """
    try:
        return _model(path)
    except FuseboundError as e:
        raise e.within(str(path)) from None


def _model(path: Path) -> Model:
    data = codec.loads(path)
    if not isinstance(data, dict):
        raise _unknown(path)
    kind = str(data.get("format", ""))
    if kind.startswith(GRAPH):
        return from_graph(_graph(data), path.name)
    if kind.startswith(PLAN):
        plan = Plan.load(path)
        return from_graph(plan.graph, path.name, plan)
    if not kind and all(field in data for field in REGION_FIELDS):
        return from_region(data, path.name)
    raise _unknown(path)


def _graph(data: dict[str, Any]) -> Graph:
    try:
        return graph_json.load(data)
    except GraphError as e:
        raise FormatError(f"damaged graph: {e.what}", where=e.where) from e


def _unknown(path: Path) -> FormatError:
    hint_ = "fusebound reads graphs, plans, and region records with `inputs`, `nodes` and `outputs`"
    return FormatError("this JSON file is none that fusebound reads", where=str(path), hint=hint_)


def from_graph(graph: Graph, name: str, plan: Plan | None = None) -> Model:
    """A saved graph as a program again: its operators run through the framework, one by one."""
    args = tuple(_example(graph, i) for i, x in enumerate(graph.inputs) if x.kind != "seed")
    from fusebound.capture.saved import replayed

    return Model(name, replayed(graph), args, graph=graph, plan=plan)


def _example(graph: Graph, index: int) -> Any:
    value = graph.values[graph.inputs[index].value]
    if value.scalar:
        return 1.0 if value.type.is_float else 1
    shape, strides = tuple(map(hint, value.shape)), tuple(map(hint, value.strides))
    x = random_tensor(shape, value.dtype, strides=strides, seed=index)
    return x.abs() if graph.inputs[index].target.endswith("running_var") else x
