"""A saved graph made runnable again: its operators, one by one, through the framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_structure

from fusebound.capture.captured import seed_holder
from fusebound.capture.encode import torch_dtype
from fusebound.capture.replay import inputs_of, prepare, resolve
from fusebound.capture.torch import Captured, trace
from fusebound.errors import FuseboundError, GraphError
from fusebound.ir.control import control, everywhere
from fusebound.ir.graph import Dim, Graph, Ref, UserOp, Value, hint
from fusebound.target.machine import require_memory


def captured_from_graph(graph: Graph) -> Captured:
    """The graph as a captured function of all its inputs but the seed, positionally, in the order of `graph.given`.

    Its program is traced from the replay of its operators, so that it can be verified. Raises FormatError
    for an operator that may not be run, GraphError for a graph whose operators do not run on values of its
    shapes, or give others than it says.
    """
    fn = replayed(graph)
    checked = replayed(graph, expect=True)
    for u in (u for _, g in everywhere(graph) for u in g.user_ops if u.written.startswith("aten.")):
        resolve(u.written)  # gates ask for its schema
    args = tuple(example(graph.values[i.value]) for i in graph.given)
    try:
        program = trace(checked, args)
    except FuseboundError:
        raise
    except Exception as e:  # whatever torch makes of arguments that no program would give
        what = next(iter(str(e).splitlines()), type(e).__name__)
        raise GraphError(f"the graph's operators do not run: {what}", code="E301") from e
    return Captured(
        graph, program, None, fn, (), tuple(Ref(o) for o in graph.outputs),
        tree_structure(((0,) * len(graph.given), {})), None, (), tuple(i.value for i in graph.given),
        state={graph.seed: seed_holder()} if graph.seed else {},
    )  # fmt: skip


def replayed(graph: Graph, *, expect: bool = False) -> Callable[..., Any]:
    """A function of the graph's given inputs that returns its outputs (one bare, several as a tuple) and mutates
    what the graph mutates. Raises as `evaluated`."""
    evaluate = evaluated(graph, expect=expect)

    def run(*args: Any) -> Any:
        env = evaluate(*args)
        new = [env[m.source] for m in graph.mutations]
        for m, value in zip(graph.mutations, new, strict=True):
            env[m.target].copy_(value)
        outs = tuple(env[o] for o in graph.outputs)
        return outs[0] if len(outs) == 1 else outs

    return run


def evaluated(
    graph: Graph, modules: Mapping[str, Callable[..., Any]] | None = None, *, expect: bool = False
) -> Callable[..., dict[str, Any]]:
    """A function of the graph's given inputs that returns the inputs and every operator's results, by value id.

    `modules` are the submodules that control flow calls, where the graph does not hold them as subgraphs. Raises
    FormatError for an operator that may not be run; with `expect` the function raises GraphError for a result of
    another shape or type than the graph says, on which kernels rely.
    """
    known = {**(modules or {}), **_bodies(graph, expect)}
    steps = [(prepare(op, known), inputs_of(op), op) for op in graph.user_ops]

    def run(*args: Any) -> dict[str, Any]:
        env: dict[str, Any] = dict(zip((i.value for i in graph.given), args, strict=True))
        for call, reads, op in steps:
            env.update(zip(op.outputs, call([env[i] for i in reads]), strict=True))
            if expect:
                _expect(graph, op, env)
        return env

    return run


def _expect(graph: Graph, op: UserOp, env: Mapping[str, Any]) -> None:
    checked_at_run_time = any(v.scalar or not v.is_static for v in graph.values.values())
    for id in op.outputs:
        v, t = graph.values[id], env[id]
        if v.scalar:
            fits = not isinstance(t, torch.Tensor)
        else:
            fits = isinstance(t, torch.Tensor) and t.dtype == torch_dtype(v.dtype) and t.dim() == len(v.shape)
            fits = fits and t.layout == torch.strided and all(map(_agree, v.shape, t.shape))
            known = fits and all(isinstance(n, int) for n in t.shape)
            fits = fits and (known or not v.is_static or checked_at_run_time)
        if not fits:
            given = f"{str(t.dtype)[6:]}{list(t.shape)}" if isinstance(t, torch.Tensor) else type(t).__name__
            said = "a number" if v.scalar else f"{v.dtype}[{', '.join(map(str, v.shape))}]"
            raise GraphError(f"{op.label} gives {given}, the graph says {said}", code="E301")


def _agree(said: Dim, given: int | torch.SymInt) -> bool:
    return said == given or not isinstance(said, int) or not isinstance(given, int)


def _bodies(graph: Graph, expect: bool) -> dict[str, Callable[..., Any]]:
    """The subgraphs as functions of their operands; a loop's test returns its bool bare, all others a tuple."""
    flow = [c for u in graph.user_ops if (c := control(graph, u)) is not None]
    tests = {c.first for c in flow if c.kind == "while_loop"}
    return {name: _body(s, bare=name in tests, expect=expect) for name, s in graph.subgraphs.items()}


def _body(graph: Graph, *, bare: bool, expect: bool) -> Callable[..., Any]:
    evaluate = evaluated(graph, expect=expect)

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
    require_memory(v.nbytes)
    return torch.empty_strided(shape, strides, dtype=dtype).zero_()
