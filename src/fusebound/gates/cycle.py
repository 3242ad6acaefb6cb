"""Cycles of the contracted graph: a path that leaves a merged group and comes back."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from fusebound.analysis.draws import generator_order
from fusebound.gates.base import Candidate
from fusebound.ir.graph import Graph


def outside_path(c: Candidate, numerics: str = "accurate") -> list[str]:
    """Nodes from the merged group through outside nodes back into it, both ends included; empty where none.

    Nodes outside are contracted by `c.owner`; groups that are views only must be left out of it. Operators that move
    the framework's generator follow one another as if each fed the next.
    """
    g = c.graph
    drawn = _after(g, numerics)
    parent: dict[str, str] = {}
    queue = deque(sorted(c.nodes, key=g.position.__getitem__))
    last = max(g.position[n] for n in c.nodes)
    while queue:
        here = queue.popleft()
        readers = (n.id for v in g.node[here].outputs for n in g.consumers[v])
        for n in (*readers, *drawn.get(g.node[here].user, ())):
            if n in c.nodes:
                if here not in c.nodes:
                    return _back(parent, here, n)
                continue
            queue.extend(_enter(c, n, here, parent, last))
    return []


def _after(g: Graph, numerics: str) -> dict[str, tuple[str, ...]]:
    """By operator that moves the generator: the nodes of the next one."""
    order = generator_order(g, numerics)
    return {a: tuple(n.id for n in g.members[b]) for a, b in pairwise(order)}


def _enter(c: Candidate, node: str, came_from: str, parent: dict[str, str], last: int) -> list[str]:
    """The nodes to go on from after reaching `node`: its whole group, unless it leads only away."""
    if node in parent:
        return []
    parent[node] = came_from
    group = c.owner.get(node)
    if group is None:
        return [node] if c.graph.position[node] < last else []
    fresh = [n for n in sorted(group, key=c.graph.position.__getitem__) if n not in parent]
    for n in fresh:
        parent[n] = node
    return [node, *fresh]


def _back(parent: dict[str, str], here: str, end: str) -> list[str]:
    path = [end, here]
    while path[-1] in parent:
        path.append(parent[path[-1]])
    return path[::-1]
