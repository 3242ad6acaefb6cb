"""The lower bound against every partition of small graphs, and how far greedy plans are from the best."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.unit.plan.graphs import Sketch

from fusebound.analysis.roofline import alone, busy_users, kernel_cost
from fusebound.analysis.space import Space, unify
from fusebound.ir.graph import Graph
from fusebound.ir.text import parse_graph
from fusebound.plan.contracted import Contracted
from fusebound.plan.cost import lower_bound_us
from fusebound.plan.greedy import plan
from fusebound.target import get
from fusebound.target.target import Target


def small_graph(seed: int) -> Graph:
    rng = random.Random(seed)
    s = Sketch()
    rows, columns = rng.choice([(32, 64), (1024, 512), (8192, 1024)])
    values = [s.input("x", rows, columns), s.input("y", rows, columns)]
    for k in range(6):
        a, b = rng.choice(values[-3:]), rng.choice(values)
        match rng.randrange(5):
            case 0:
                values.append(s.softmax(a, f"softmax{k}"))
            case 1:
                values.append(s.opaque(f"opaque{k}", a))
            case 2:
                values.append(s.op(f"exp{k}", "exp", a))
            case _:
                values.append(s.op(f"add{k}", "add", a, b))
    read = {v for n in s.b.nodes for v in n.inputs}
    return s.done(*(n.out for n in s.b.nodes if n.out not in read))


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    head, *rest = items
    for smaller in partitions(rest):
        yield [[head], *smaller]
        for k, block in enumerate(smaller):
            yield [*smaller[:k], [head, *block], *smaller[k + 1 :]]


def cost(g: Graph, blocks: list[list[int]], target: Target) -> float | None:
    """Predicted time of one partition of the user operators, or None where it is illegal."""
    groups = Contracted(g)
    total = 0.0
    for block in blocks:
        if len(block) > 1 and groups.returns(block):
            return None
        keep = groups.merge(block) if len(block) > 1 else block[0]
        nodes = groups.nodes[keep]
        if len(busy_users(g, nodes)) < 2:
            space = unify(g, nodes)
            own = kernel_cost(g, nodes, target, space).total if isinstance(space, Space) else float("inf")
            total += min(alone(g, nodes, target).total, own)
            continue
        space = unify(g, nodes)
        if not isinstance(space, Space):
            return None
        total += kernel_cost(g, nodes, target, space).total
    return total


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", ["cpu-avx512", "h100"])
def test_no_partition_beats_the_bound_and_greedy_is_near_the_best(seed: int, name: str) -> None:
    g, target = small_graph(seed), get(name)
    every = (cost(g, blocks, target) for blocks in partitions(list(range(len(g.user_ops)))))
    best = min(c for c in every if c is not None)
    assert lower_bound_us(g, target) <= best + 1e-6
    p = plan(g, target=target, expected_calls=10**9)
    assert best - 1e-3 <= p.predicted_us <= 1.4 * best


LOOKED_UP = """fusebound.graph 1 "f"
%x = input user "x" : f32[64, 65536]
%i = input user "i" : i64[64, 16]
gather: aten.gather.default(%x, 1, %i) -> %gather gather
  %gather = gather(%x, %i) {dim = 1} : f32[64, 16]
neg: aten.neg.default(%gather) -> %neg pointwise
  %neg = neg(%gather) : f32[64, 16]
return %neg
"""


@pytest.mark.parametrize("policy", ["tile", "none"])
def test_the_bound_of_a_look_up_counts_what_is_looked_up(policy: str) -> None:
    g, target = parse_graph(LOOKED_UP), get("cpu-avx512")
    p = plan(g, target=target, policy=policy)
    assert lower_bound_us(g, target) <= p.predicted_us and p.gap >= 0
