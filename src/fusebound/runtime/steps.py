"""One step of an executable: a function that reads and fills the table of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from fusebound.capture.replay import inputs_of, prepare
from fusebound.codegen.build import Kernel
from fusebound.ir.graph import Graph, UserOp
from fusebound.runtime.launch import launcher
from fusebound.runtime.pool import pool
from fusebound.runtime.private import profiling as _profiling

Step = Callable[[list[Any]], None]


class Switches(Protocol):
    """What a step asks its executable at every run."""

    poison: bool
    threads: int


def kernel_step(
    graph: Graph, kernel: Kernel, slot: Mapping[str, int], direct: Mapping[str, str], switches: Switches
) -> Step:
    """Run a kernel: outputs come from the pool, except those that are written straight into an input."""
    made = set(graph.values) - set(graph.input_ids)
    reads = tuple(slot[v] for v in kernel.inputs)
    unsure = tuple((slot[v], _strides(graph, v)) for v in kernel.inputs if v in made)
    writes = tuple((slot[v], _allocator(graph, v), slot.get(direct.get(v, ""), -1)) for v in kernel.outputs)
    elements = max(graph.values[v].numel for v in (*kernel.inputs, *kernel.outputs))
    launch = launcher(kernel, elements, switches.threads)

    def step(env: list[Any]) -> None:
        for i, strides in unsure:
            if env[i].stride() != strides:
                env[i] = _restride(env[i], strides)
        tensors = [env[i] for i in reads]
        for i, allocate, target in writes:
            if target >= 0:
                env[i] = t = env[target]
            else:
                env[i] = t = allocate()
                if switches.poison:
                    _poison(t)
            tensors.append(t)
        if _profiling():
            with torch.profiler.record_function(kernel.name):
                launch(*tensors)
        else:
            launch(*tensors)

    return step


def framework_step(graph: Graph, op: UserOp, slot: Mapping[str, int], captured: Any) -> Step:
    """Run one user operator through the framework."""
    call = prepare(op, getattr(captured, "modules", None))
    reads = [slot[v] for v in inputs_of(op)]
    writes = [slot[v] for v in op.outputs]

    def step(env: list[Any]) -> None:
        for i, value in zip(writes, call([env[i] for i in reads]), strict=True):
            env[i] = value

    return step


def _strides(graph: Graph, value: str) -> tuple[int, ...]:
    return tuple(s for s in graph.values[value].strides if isinstance(s, int))


def _allocator(graph: Graph, value: str) -> Callable[[], torch.Tensor]:
    v = graph.values[value]
    shape = tuple(d for d in v.shape if isinstance(d, int))
    return pool.allocator(shape, _strides(graph, value), getattr(torch, v.dtype))


def _restride(t: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """A copy with the strides that the kernel was compiled for (an operator chose another layout this time)."""
    if t.numel() == 0 or all(n == 1 or a == b for n, a, b in zip(t.shape, t.stride(), strides, strict=True)):
        return t
    out = torch.empty_strided(t.shape, strides, dtype=t.dtype)
    return out.copy_(t)


def _poison(t: torch.Tensor) -> None:
    t.fill_(float("nan") if t.dtype.is_floating_point else True if t.dtype == torch.bool else 77)
