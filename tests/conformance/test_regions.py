"""All regions of the shared corpus: no worse than eager, and fused where operators feed one another."""

from __future__ import annotations

from pathlib import Path

import torch

from fusebound.analysis.alias import is_view
from fusebound.api.model import resolve
from fusebound.capture.torch import capture
from fusebound.engine.build import build
from fusebound.ir.graph import Graph
from fusebound.plan.candidates import origin, roles
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.target import get
from fusebound.verify.check import verify
from fusebound.verify.inputs import PLAIN

SHARE = 0.85
"""Regions with operators that feed one another in which a kernel must cross such an edge."""


def edges(g: Graph) -> set[tuple[str, str]]:
    """Pairs of operators, views looked through, of which the first feeds the second."""
    kinds = roles(g)
    found: set[tuple[str, str]] = set()
    for n in g.nodes:
        for v in n.inputs:
            _, maker = origin(g, kinds, v)
            if maker is not None and maker.name != n.user and not is_view(g, g.user[n.user]):
                found.add((maker.name, n.user))
    return found


def crosses(p: Plan) -> bool:
    """Whether some kernel holds both ends of an edge."""
    return any({a, b} <= set(k.users) for k in p.kernels for a, b in edges(p.graph))


def test_every_region_is_no_worse_than_eager_and_most_are_fused(shared: Path) -> None:
    torch.set_num_threads(1)
    target = get("cpu-avx512")
    worse: list[str] = []
    apart: list[str] = []
    connected = 0
    for path in sorted((shared / "corpus" / "regions").glob("*.json")):
        model = resolve(str(path))
        captured = capture(model.fn, model.args)
        p = plan(captured.graph, target=target)
        if not verify(build(p, captured), captured, model.args, sets=PLAIN).ok:
            worse.append(path.stem)
        if edges(p.graph):
            connected += 1
            if not crosses(p):
                apart.append(path.stem)
    assert not worse
    assert len(apart) <= (1 - SHARE) * connected, apart
