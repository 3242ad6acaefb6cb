"""The calls whose fixed cost calibration measures: a kernel, an eager operator, fresh memory, compilation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from fusebound.codegen.build import compile_group
from fusebound.ir.builder import Builder
from fusebound.ir.graph import Graph
from fusebound.runtime.steps import kernel_step
from fusebound.target.target import Target


@dataclass(slots=True)
class _Serial:
    """What a step asks its executable: no poison, one thread."""

    poison: bool = False
    threads: int = 1
    entered: set[str] = field(default_factory=set[str])


def launch_call(target: Target) -> Callable[[], object]:
    """What a fused kernel costs in an executable before its loop starts: an output, the call."""
    b = Builder("calibrate")
    x, y = (b.input(name, (16,), "float32") for name in "xy")
    b.begin("add")
    out = b.emit("add", x, y)
    b.end("aten.add.Tensor", (), (), (out,), "pointwise")
    graph = b.finish((out,))
    kernel = compile_group(graph, [n.id for n in graph.nodes], target, name="calibrate_launch")
    slots = {v: i for i, v in enumerate(graph.values)}
    step = kernel_step(graph, kernel, slots, {}, _Serial())
    env = [torch.zeros(16), torch.zeros(16), None]
    return lambda: step(env)


def dispatch_call() -> Callable[[], object]:
    """One eager operator on tensors too small for its loop to count."""
    x, y = torch.zeros(16), torch.zeros(16)
    return lambda: torch.add(x, y)


def fresh_call(nbytes: int) -> Callable[[], object]:
    """Write memory that the system has just given."""
    return lambda: torch.empty(nbytes // 4).fill_(1.0)


def reused_call(nbytes: int) -> Callable[[], object]:
    """Write memory that has been written before."""
    held = torch.zeros(nbytes // 4)
    return lambda: held.fill_(1.0)


def with_threads(call: Callable[[], object], threads: int) -> Callable[[], object]:
    """`call` run with that many of torch's threads."""

    def run() -> object:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return call()
        finally:
            torch.set_num_threads(before)

    return run


def compile_samples(target: Target, count: int) -> list[float]:
    """µs per kernel to lower and compile a chain of typical primitives, `count` times, no cache.

    What its primitives cost by the target's own figure is taken off. Time is the processor time of this thread, so
    that other work does not count.
    """
    graph = _chain()
    nodes = [n.id for n in graph.nodes]
    times: list[float] = []
    for i in range(count):
        start = time.thread_time()
        compile_group(graph, nodes, target, name=f"calibrate_{i}")
        whole = (time.thread_time() - start) * 1e6
        times.append(max(whole - target.compile_primitive_us * len(nodes), 0.0))
    return times


def _chain() -> Graph:
    """exp(x - max(x)) / sum: the mix of loads, reductions and transcendental functions of real
    kernels."""
    b = Builder("calibrate")
    x = b.input("x", (64, 1000), "float32")
    b.begin("softmax")
    top = b.emit("reshape", b.emit("amax", x, axes=(1,)), shape=(64, 1))
    e = b.emit("exp", b.emit("sub", x, top))
    total = b.emit("reshape", b.emit("sum", e, axes=(1,)), shape=(64, 1))
    out = b.emit("div", e, total)
    b.end("aten.softmax.int", (), (), (out,), "reduce")
    return b.finish((out,))
