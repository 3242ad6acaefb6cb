"""What a kernel made of some nodes must read from and leave in memory."""

from __future__ import annotations

from collections.abc import Collection

from fusebound.ir.graph import Graph


def boundary(g: Graph, nodes: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The values that a kernel of `nodes` reads from memory and those that it must store, in graph order."""
    inside = nodes if isinstance(nodes, (set, frozenset)) else frozenset(nodes)
    inputs: dict[str, None] = {}
    outputs: dict[str, None] = {}
    for n in in_order(g, inside):
        for v in n.inputs:
            p = g.producer.get(v)
            if p is None or p.id not in inside:
                inputs[v] = None
        for v in n.outputs:
            if v in g.escaping or any(c.id not in inside for c in g.consumers[v]):
                outputs[v] = None
    return tuple(inputs), tuple(outputs)


def in_order(g: Graph, nodes: Collection[str]):
    """The nodes with these ids in the graph's topological order."""
    return sorted((g.node[i] for i in nodes), key=lambda n: g.position[n.id])
