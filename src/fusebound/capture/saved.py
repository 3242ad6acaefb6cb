"""A saved graph made runnable again: its operators, one by one, through the framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_structure

from fusebound.capture.captured import seed_holder
from fusebound.capture.encode import torch_dtype
from fusebound.capture.replay import inputs_of, prepare
from fusebound.capture.torch import Captured, trace
from fusebound.errors import GraphError
from fusebound.ir.control import control
from fusebound.ir.graph import Graph, Ref, Value, hint


def captured_from_graph(graph: Graph) -> Captured:
    """The graph as a captured function of all its inputs but the seed, positionally, in the order of `graph.given`.

    Its program is traced from the replay of its operators, so that it can be verified. Raises FormatError
    for an operator that may not be run, GraphError for a graph whose operators do not run on values of its
    shapes.
    """
    fn = replayed(graph)
    try:
        program = trace(fn, tuple(example(graph.values[i.value]) for i in graph.given))
    except (RuntimeError, TypeError, ValueError, IndexError) as e:
        raise GraphError(f"the graph's operators do not run: {str(e).splitlines()[0]}", code="E301") from e
    return Captured(
        graph, program, None, fn, (), tuple(Ref(o) for o in graph.outputs),
        tree_structure(((0,) * len(graph.given), {})), None, (), tuple(i.value for i in graph.given),
        state={graph.seed: seed_holder()} if graph.seed else {},
    )  # fmt: skip


def replayed(graph: Graph) -> Callable[..., Any]:
    """A function of the graph's given inputs that returns its outputs (one bare, several as a tuple) and mutates
    what the graph mutates. Raises FormatError for an operator that may not be run."""
    evaluate = evaluated(graph)

    def run(*args: Any) -> Any:
        env = evaluate(*args)
        new = [env[m.source] for m in graph.mutations]
        for m, value in zip(graph.mutations, new, strict=True):
            env[m.target].copy_(value)
        outs = tuple(env[o] for o in graph.outputs)
        return outs[0] if len(outs) == 1 else outs

    return run


def evaluated(
    graph: Graph, modules: Mapping[str, Callable[..., Any]] | None = None
) -> Callable[..., dict[str, Any]]:
    """A function of the graph's given inputs that returns the inputs and every operator's results, by value id.

    `modules` are the submodules that control flow calls, where the graph does not hold them as subgraphs. Raises
    FormatError for an operator that may not be run.
    """
    known = {**(modules or {}), **_bodies(graph)}
    steps = [(prepare(op, known), inputs_of(op), op.outputs) for op in graph.user_ops]

    def run(*args: Any) -> dict[str, Any]:
        env: dict[str, Any] = dict(zip((i.value for i in graph.given), args, strict=True))
        for call, reads, writes in steps:
            env.update(zip(writes, call([env[i] for i in reads]), strict=True))
        return env

    return run


def _bodies(graph: Graph) -> dict[str, Callable[..., Any]]:
    """The subgraphs as functions of their operands; a loop's test returns its bool bare, all others a tuple."""
    flow = [c for u in graph.user_ops if (c := control(graph, u)) is not None]
    tests = {c.first for c in flow if c.kind == "while_loop"}
    return {name: _body(s, bare=name in tests) for name, s in graph.subgraphs.items()}


def _body(graph: Graph, *, bare: bool) -> Callable[..., Any]:
    evaluate = evaluated(graph)

    def run(*operands: Any) -> Any:
        env = evaluate(*operands)
        return env[graph.outputs[0]] if bare else tuple(env[o] for o in graph.outputs)

    return run


def example(v: Value) -> Any:
    """Zeros of the value's shape, type and strides; a number where the value is one."""
    dtype = torch_dtype(v.dtype)
    if v.scalar:
        return True if dtype == torch.bool else 1.0 if dtype.is_floating_point else 1
    shape, strides = tuple(map(hint, v.shape)), tuple(map(hint, v.strides))
    return torch.empty_strided(shape, strides, dtype=dtype).zero_()
