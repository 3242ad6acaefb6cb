"""The contracted graph against a plain search for cycles."""

from __future__ import annotations

import random

import pytest
from tests.unit.plan.graphs import Sketch

from fusebound.ir.graph import Graph
from fusebound.plan.contracted import Contracted


def random_graph(rng: random.Random, size: int) -> Graph:
    s = Sketch()
    values = [s.input("x", 8)]
    for k in range(size):
        a, b = rng.choice(values[-6:]), rng.choice(values[-6:])
        values.append(s.op(f"n{k}", "add", a, b))
    return s.b.finish((values[-1],))


def reachable(g: Graph, group: dict[str, int]) -> dict[int, set[int]]:
    """Which groups each group leads to, by closure over all edges."""
    after: dict[int, set[int]] = {i: set() for i in group.values()}
    for n in g.nodes:
        for v in n.inputs:
            p = g.producer.get(v)
            if p is not None and group[p.user] != group[n.user]:
                after[group[p.user]].add(group[n.user])
    for _ in after:
        for i in after:
            for j in list(after[i]):
                after[i] |= after[j]
    return after


@pytest.mark.parametrize("seed", range(12))
def test_merging_keeps_an_order_and_finds_every_cycle(seed: int) -> None:
    rng = random.Random(seed)
    g = random_graph(rng, 24)
    c = Contracted(g)
    for _ in range(40):
        live = c.live()
        if len(live) < 3:
            break
        chosen = set(rng.sample(live, rng.choice((2, 2, 3))))
        trial = {u.name: c.find(c.index[u.name]) for u in g.user_ops}
        merged = {u: min(chosen) if i in chosen else i for u, i in trial.items()}
        after = reachable(g, merged)
        cyclic = any(i in js for i, js in after.items())
        assert c.returns(chosen) == cyclic
        if cyclic:
            with pytest.raises(ValueError, match="cycle"):
                c.merge(chosen)
            continue
        keep = c.merge(chosen)
        assert keep in chosen and set(c.names(keep)) == {u for u, i in trial.items() if i in chosen}
        check_order(g, c)


def check_order(g: Graph, c: Contracted) -> None:
    place = {i: k for k, i in enumerate(c.live())}
    for n in g.nodes:
        for v in n.inputs:
            p = g.producer.get(v)
            if p is not None:
                a, b = c.find(c.index[p.user]), c.find(c.index[n.user])
                assert a == b or place[a] < place[b]
                assert a == b or (b in c.succ[a] and a in c.pred[b])
