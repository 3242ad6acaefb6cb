"""One step of an executable that runs control flow: a branch, or a loop, each a plan of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from fusebound.analysis.alias import is_view
from fusebound.capture.replay import is_alias
from fusebound.ir.control import Control
from fusebound.ir.graph import Graph, Ref, UserOp
from fusebound.runtime.steps import Step

Body = Callable[[Sequence[Any]], list[Any]]
"""A subgraph's executable: its operands in, its results out."""


def control_step(
    op: UserOp, c: Control, graph: Graph, slot: Mapping[str, int], bodies: Mapping[str, Body]
) -> Step:
    """Run the branch that the predicate chooses, or the body while the test holds.

    Results never share memory with the operands, as eager promises.
    """
    operands = _operands(c, slot)
    writes = [slot[v] for v in op.outputs]
    first, second = (_apart(graph.subgraphs[name], bodies[name]) for name in c.subgraphs)
    if c.kind == "cond":
        predicate = slot[c.predicate]

        def branch(env: list[Any]) -> None:
            results = (first if env[predicate] else second)(operands(env))
            for i, value in zip(writes, results, strict=True):
                env[i] = value

        return branch

    def loop(env: list[Any]) -> None:
        values = operands(env)
        carried, extra = values[: c.carried], values[c.carried :]
        rounds = 0
        while first([*carried, *extra])[0]:
            carried = second([*carried, *extra])
            rounds += 1
        if not rounds:
            carried = [_copy(x) for x in carried]
        for i, value in zip(writes, carried, strict=True):
            env[i] = value

    return loop


def entered(
    c: Control, slot: Mapping[str, int], env: Sequence[Any], bodies: Mapping[str, Body]
) -> Iterator[tuple[str, list[Any]]]:
    """The subgraphs that a call begins with, with their operands: the branch taken; the test, and the body after it."""
    operands = _operands(c, slot)(env)
    if c.kind == "cond":
        yield (c.first if env[slot[c.predicate]] else c.second), operands
        return
    yield c.first, operands
    if bodies[c.first](operands)[0]:
        yield c.second, operands


def _operands(c: Control, slot: Mapping[str, int]) -> Callable[[Sequence[Any]], list[Any]]:
    """From the table of values to the operands."""
    getters = [(slot[a.id], None) if isinstance(a, Ref) else (-1, a) for a in c.operands]
    return lambda env: [env[i] if i >= 0 else number for i, number in getters]


def _apart(graph: Graph, body: Body) -> Body:
    """The body with copies of those results that are its operands, or views of them."""
    shared = [k for k, v in enumerate(graph.outputs) if _origin(graph, v) in graph.input_ids]
    if not shared:
        return body

    def run(operands: Sequence[Any]) -> list[Any]:
        results = body(operands)
        for k in shared:
            results[k] = _copy(results[k])
        return results

    return run


def _copy(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) else x


def _origin(graph: Graph, value: str) -> str:
    """The value behind a chain of views."""
    while (n := graph.producer.get(value)) and (is_view(graph, u := graph.user[n.user]) or is_alias(u)):
        value = graph.members[n.user][0].inputs[0]
    return value
