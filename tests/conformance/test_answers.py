"""Over real graphs every pair that shares data gets an answer: never `unknown`, never "no shared data"."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.whole_models import MODELS

from fusebound.analysis.alias import storages
from fusebound.api.model import resolve
from fusebound.capture.torch import capture
from fusebound.ir.graph import Graph
from fusebound.plan.candidates import raw_edges, roles, sibling_edges
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.target import get


def pairs(g: Graph) -> Iterator[tuple[str, str]]:
    """Operators that feed one another or read one storage, views looked through."""
    kinds = roles(g)
    yield from dict.fromkeys((e.a, e.b) for e in (*raw_edges(g, kinds), *sibling_edges(g, kinds)))


def wrong_answers(p: Plan) -> Iterator[str]:
    """What no answer may say."""
    base = storages(p.graph).base
    for a, b in pairs(p.graph):
        found = p.why(a, b)
        for v in found.judgement.verdicts:
            if v.state == "unknown":
                yield f"{a}, {b}: {v}"
        if "F107" in found.codes:
            touched = [
                {base[v] for n in p.graph.members[u] for v in (*n.inputs, *n.outputs)}
                for u in (found.a.name, found.b.name)
            ]
            if touched[0] & touched[1]:
                yield f"{a}, {b}: share {', '.join(touched[0] & touched[1])}, and {found.judgement.dependence}"
        veto = found.judgement.first
        if veto is not None and not (veto.message and veto.counterfactual):
            yield f"{a}, {b}: {veto.code} without a reason or a way out"


def test_every_region_of_the_corpus(shared: Path) -> None:
    target = get("cpu-avx512")
    wrong: list[str] = []
    for path in sorted((shared / "corpus" / "regions").glob("*.json")):
        model = resolve(str(path))
        graph = capture(model.fn, model.args).graph
        wrong += [f"{path.stem}: {w}" for w in wrong_answers(plan(graph, target=target))]
    assert not wrong


@pytest.mark.parametrize("name", MODELS)
def test_every_whole_model(name: str) -> None:
    model, args = MODELS[name]()
    graph = capture(model.eval(), args, name=name).graph
    assert not list(wrong_answers(plan(graph, target=get("cpu-avx512"))))
