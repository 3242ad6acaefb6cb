"""Inputs for simulations: ordinary numbers, a large mean, a wide range, and the values that break things."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusebound.analysis.access import integer
from fusebound.analysis.group import boundary
from fusebound.analysis.interpret import rounded
from fusebound.analysis.shrink import Shapes
from fusebound.ir.dtypes import DTYPES
from fusebound.ir.graph import Graph
from fusebound.ir.ops import spec_of

Array = NDArray[Any]

NAMES = ("normal", "large mean", "wide", "special")

_SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, 6e4, 1.0, -1.0)


def make(g: Graph, nodes: Collection[str], shapes: Shapes, name: str) -> dict[str, Array]:
    """Arrays for every external input of `nodes`, the same ones on every call."""
    rng = np.random.default_rng(NAMES.index(name))
    inputs, _ = boundary(g, nodes)
    limits = _limits(g, nodes)
    return {v: _array(g.values[v].dtype, shapes[v], name, limits.get(v, 8), rng) for v in inputs}


def _array(dtype: str, shape: tuple[int, ...], name: str, limit: int, rng: np.random.Generator) -> Array:
    kind = DTYPES[dtype].kind
    if kind == "bool":
        return rng.random(shape) < 0.5
    if kind != "float":
        return rng.integers(0, max(limit, 1), shape).astype(dtype)
    return rounded(np.asarray(_floats(shape, name, rng)), dtype)


def _floats(shape: tuple[int, ...], name: str, rng: np.random.Generator) -> Array:
    x = np.asarray(rng.standard_normal(shape), np.float64)
    match name:
        case "large mean":
            return x + 100.0
        case "wide":
            return x * 10.0 ** rng.uniform(-4.0, 4.0, shape)
        case "special":
            return np.where(rng.random(shape) < 0.1, rng.choice(_SPECIAL, shape), x)
        case _:
            return x


def _limits(g: Graph, nodes: Collection[str]) -> Mapping[str, int]:
    """The size of the axis that each index input points into."""
    found: dict[str, int] = {}
    for i in nodes:
        n = g.node[i]
        spec = spec_of(n.op)
        if spec is not None and spec.cls == "gather":
            size = g.values[n.inputs[0]].shape[integer(n.attr("dim"))]
            found[n.inputs[1]] = size if isinstance(size, int) else size.hint
    return found
