"""The error of a candidate, simulated on small shapes: eager's roundings and a kernel's against float64."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusebound.analysis import datasets
from fusebound.analysis.group import boundary
from fusebound.analysis.interpret import evaluate, rounded
from fusebound.analysis.numerics import ErrorFacts, beyond
from fusebound.analysis.shrink import Shapes, shrink
from fusebound.analysis.structure import Key, structure
from fusebound.analysis.tau import Difference, Tau, ulp
from fusebound.ir.graph import Graph
from fusebound.ir.ops import spec_of

Array = NDArray[Any]


_KNOWN: dict[tuple[Key, Tau | None], tuple[int, ErrorFacts] | None] = {}
"""Results by the structure of the group, so that the layers of a model are simulated once."""

MAX_KNOWN = 1024


def simulate(g: Graph, nodes: frozenset[str], tau: Tau | None = None) -> ErrorFacts | None:
    """The worst output on the worst data set, or None where the group cannot be simulated.

    `difference`, measured against `tau` too, is taken over ordinary (normal) data only: a wide range would set it.
    Sums are float32 pairwise for eager and float64 for the fused kernel.
    """
    key = structure(g, nodes), tau
    try:
        found = _KNOWN[key]
    except KeyError:
        found = _worst(g, nodes, tau)
        if len(_KNOWN) >= MAX_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = found
    if found is None:
        return None
    place, facts = found
    return replace(facts, output=boundary(g, nodes)[1][place])


def _worst(g: Graph, nodes: frozenset[str], tau: Tau | None) -> tuple[int, ErrorFacts] | None:
    if any(spec_of(g.node[i].op) is None for i in nodes):
        return None
    shapes = shrink(g, nodes)
    if shapes is None:
        return None
    try:
        with np.errstate(all="ignore"):
            found = [f for name in datasets.NAMES for f in _compare(g, nodes, shapes, name, tau)]
    except IndexError:  # an index that the group computes from drawn numbers leaves its source
        return None
    if not found:
        return None
    worst = max(found, key=_badness)
    difference = reduce(
        Difference.or_larger, (f.difference for f in found if f.data == "normal"), Difference()
    )
    gained = max(f.finite_gained for f in found)
    facts = replace(worst, difference=difference, finite_gained=gained)
    return boundary(g, nodes)[1].index(worst.output), facts


def _badness(f: ErrorFacts) -> tuple[bool, float]:
    tiny = np.finfo(np.float64).tiny
    return bool(f.class_changes), max(f.fused_rms / max(f.rms_limit, tiny), f.excess / max(f.max_limit, tiny))


def _compare(
    g: Graph, nodes: Collection[str], shapes: Shapes, name: str, tau: Tau | None
) -> list[ErrorFacts]:
    inputs = datasets.make(g, nodes, shapes, name)
    wide = {v: x.astype(np.longdouble) if _double(g, v) else x for v, x in inputs.items()}
    eager = evaluate(g, nodes, inputs, shapes, "eager")
    fused = evaluate(g, nodes, inputs, shapes, "fused")
    exact = evaluate(g, nodes, wide, shapes, "exact")
    _, outputs = boundary(g, nodes)
    floats = [v for v in outputs if g.values[v].type.is_float and eager[v].size]
    return [
        _facts(v, name, g.values[v].dtype, eager[v], rounded(fused[v], g.values[v].dtype), exact[v], tau)
        for v in floats
    ]


def _double(g: Graph, value: str) -> bool:
    return g.values[value].dtype == "float64"


def _facts(
    output: str, data: str, dtype: str, eager: Array, fused: Array, exact: Array, tau: Tau | None
) -> ErrorFacts:
    want = rounded(exact, dtype)
    in_eager, in_fused, in_truth = np.isfinite(eager), np.isfinite(fused), np.isfinite(want)
    good = in_eager & in_fused
    # Where the reference alone is not finite, eager is the reference.
    a, b, c = eager[good], fused[good], np.where(in_truth, exact, eager)[good]
    ea, eb = np.abs(a - c), np.abs(b - c)
    wrong = (_class(fused) != _class(want)) & (_class(eager) == _class(want))
    return ErrorFacts(
        output, data, _rms(ea), _rms(eb), _max(ea), _max(eb), _max(beyond(eb, ulp(c, dtype))),
        Difference.between(a, b, dtype, tau), float(ulp(_rms(c), dtype)),
        int(np.sum(wrong)), int(np.sum(in_eager & in_truth & ~in_fused)),
        int(np.sum(in_fused & in_truth & ~in_eager)),
    )  # fmt: skip


def _class(x: Array) -> Array:
    """0 finite, 1 +Inf, 2 -Inf, 3 NaN."""
    return np.where(np.isnan(x), 3, np.where(np.isinf(x), np.where(x > 0, 1, 2), 0))


def _rms(x: Array) -> float:
    return float(np.sqrt(np.mean(np.square(x)))) if x.size else 0.0


def _max(x: Array) -> float:
    return float(np.max(x)) if x.size else 0.0
