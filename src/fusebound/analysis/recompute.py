"""A value with several consumers: what sharing, recomputing and materialising it would cost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fusebound.analysis.roofline import bandwidth, instructions
from fusebound.analysis.traffic import level
from fusebound.ir.graph import Graph
from fusebound.target.target import Target


@dataclass(frozen=True, slots=True)
class Ways:
    """The three choices for one value and its consumers outside a group, in µs.

    Sharing stores it as an extra output; recomputing evaluates its producer again in each consumer's kernel
    and reads the producer's operands; materialising cuts the graph at the value.
    """

    share_us: float
    recompute_us: float
    evaluations: int
    materialise_us: float


def ways(g: Graph, value: str, nodes: Collection[str], target: Target) -> Ways:
    """Price the three ways for `value`, computed and read by `nodes`, with other consumers outside."""
    size = g.values[value].nbytes
    outside = sum(1 for n in g.consumers[value] if n.id not in nodes)
    rate = bandwidth(level(g, value, target), target)
    share = size * (1 + outside)
    materialise = size * (2 + outside)
    producer = [n.id for n in g.members[g.producer[value].user]]
    reads = sum(g.values[v].nbytes for v in _operands(g, producer)) * outside
    compute = instructions(g, producer, target) / target.flops * outside
    again = max(reads / rate, compute)
    return Ways(share / rate, again, len(producer) * outside, target.launch_us + materialise / rate)


def _operands(g: Graph, nodes: Collection[str]) -> list[str]:
    made = {v for i in nodes for v in g.node[i].outputs}
    return list(dict.fromkeys(v for i in nodes for v in g.node[i].inputs if v not in made))
