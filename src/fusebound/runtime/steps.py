"""One step of an executable: a function that reads and fills the table of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from fusebound.analysis.alias import is_view
from fusebound.capture.captured import Captured
from fusebound.capture.replay import inputs_of, is_alias, is_in_place, prepare
from fusebound.codegen.build import Kernel
from fusebound.errors import BuildError, UsageError
from fusebound.ir.graph import Graph, UserOp
from fusebound.ir.ops import OPS
from fusebound.runtime.launch import Launch, launcher
from fusebound.runtime.poison import Guarded
from fusebound.runtime.pool import pool
from fusebound.runtime.private import profiling as _profiling

_increment_version = torch.autograd.graph.increment_version

Step = Callable[[list[Any]], None]

KNOWN_BLOCKS = 256
"""Output addresses that a step remembers before it starts anew."""


class Switches(Protocol):
    """What a step asks its executable: for `poison` at every run, for `threads` once, when the step is made."""

    poison: bool
    threads: int


def kernel_step(
    graph: Graph, kernel: Kernel, slot: Mapping[str, int], direct: Mapping[str, str], switches: Switches
) -> Step:
    """Run a kernel: outputs come from the pool, except those that are written straight into an input."""
    made = set(graph.values) - set(graph.input_ids)
    reads = tuple(slot[v] for v in kernel.inputs)
    numbers = tuple(slot[v] for v in kernel.inputs if graph.values[v].scalar)
    unsure = tuple((slot[v], v, strides_of(graph, v), dtype_of(graph, v)) for v in kernel.inputs if v in made)
    resting = tuple((slot[v], v, shape_of(graph, v)) for v in kernel.inputs if is_believed(graph, v))
    writes = tuple(
        (
            slot[v],
            allocator(graph, v),
            slot.get(direct.get(v, ""), -1),
            slot.get(kernel.partial.get(v, ""), -1),
        )
        for v in kernel.outputs
    )
    launch = launch_of(graph, kernel, switches.threads)

    def step(env: list[Any]) -> None:
        for i in numbers:
            if not isinstance(env[i], torch.Tensor):
                env[i] = torch.tensor(env[i], dtype=torch.float64)
        for i, value, shape in resting:
            if env[i].shape != shape:
                raise _another_size(graph, value, env[i])
        for i, value, strides, dtype in unsure:
            if env[i].dtype != dtype:
                raise _another_type(graph, value, env[i])
            if env[i].stride() != strides or env[i].is_neg():
                env[i] = restride(env[i], strides)
        tensors = [env[i] for i in reads]
        guards: list[Guarded] = []
        for i, allocate, target, rest in writes:
            if target >= 0:
                env[i] = t = env[target]
                _increment_version(t)
            else:
                env[i] = t = allocate()
                if switches.poison:
                    guards.append(Guarded(t))
                    env[i] = t = guards[-1].tensor
                if rest >= 0:
                    t.copy_(env[rest])
            tensors.append(t)
        if _profiling():
            with torch.profiler.record_function(kernel.name):
                launch(*tensors)
        else:
            launch(*tensors)
        if guards and not all(g.intact for g in guards):
            raise BuildError(f"the kernel {kernel.name} writes outside of its outputs")

    return step


def launch_of(graph: Graph, kernel: Kernel, threads: int) -> Launch:
    """The kernel as a function of its parameters, in the form for the memory that it is given."""
    elements = largest(graph, kernel)
    launch = launcher(kernel, elements, threads)
    if not kernel.program.streams:
        return launch
    return _by_memory(launch, launcher(kernel, elements, threads, fresh=True), len(kernel.inputs))


def largest(graph: Graph, kernel: Kernel) -> int:
    """Elements of the largest tensor that a kernel reads or writes."""
    return max(graph.values[v].numel for v in (*kernel.inputs, *kernel.outputs))


def _by_memory(known: Launch, fresh: Launch, reads: int) -> Launch:
    """Run `fresh` where an output lies in memory that this step has not written before, else `known`.

    A block that was given back and mapped again at the same address is taken for known: slower, never wrong.
    """
    seen: set[int] = set()

    def launch(*tensors: torch.Tensor) -> None:
        places = {t.data_ptr() for t in tensors[reads:]}
        if places <= seen:
            known(*tensors)
            return
        if len(seen) > KNOWN_BLOCKS:
            seen.clear()
        seen.update(places)
        fresh(*tensors)

    return launch


def framework_step(graph: Graph, op: UserOp, slot: Mapping[str, int], captured: Captured) -> Step:
    """Run one user operator through the framework.

    An argument that only lends its shape and type (`zeros_like(x)`, the target of a copy) may have stayed inside a
    kernel: fresh memory of the same kind stands in for it.
    """
    call = prepare(op, captured.modules)
    ids = inputs_of(op)
    reads = [slot[v] for v in ids]
    writes = [slot[v] for v in op.outputs]
    needed = {v for n in graph.members[op.name] for v in n.inputs}
    numbers = [k for k, v in enumerate(ids) if graph.values[v].scalar]
    lent = [(k, allocator(graph, v)) for k, v in enumerate(ids) if v not in needed]
    # What the user wrote in place keeps its strides, which the functional operator may not. The views that are made
    # again after it are part of it, and stay views.
    in_place = is_in_place(op) and not is_view(graph, op) and not is_alias(op)
    kept = {slot[v]: strides_of(graph, v) for v in op.outputs if in_place and _is_laid_out(graph, v)}

    def step(env: list[Any]) -> None:
        values = [env[i] for i in reads]
        for k, allocate in lent:
            if values[k] is None:
                values[k] = allocate()
        for k in numbers:
            if isinstance(values[k], torch.Tensor):
                values[k] = values[k].item()
        for i, value in zip(writes, call(values), strict=True):
            env[i] = value
        for i, strides in kept.items():
            env[i] = restride(env[i], strides)

    return step


def is_believed(graph: Graph, value: str) -> bool:
    """Whether a value's shape is what tracing believed: the framework makes it, in a program with sizes of the run."""
    maker = graph.producer.get(value)
    made = maker is not None and maker.op not in OPS and not graph.values[value].scalar
    return made and any(v.scalar or not v.is_static for v in graph.values.values())


def _another_size(graph: Graph, value: str, t: torch.Tensor) -> UsageError:
    user = graph.user[graph.producer[value].user]
    return UsageError(
        f"{user.label} gives {list(t.shape)}, the plan was built for {list(shape_of(graph, value))}", code="E123",
        hint="its size depends on data: check the bounds with torch._check, or use fusebound.compile",
    )  # fmt: skip


def _another_type(graph: Graph, value: str, t: torch.Tensor) -> UsageError:
    user = graph.user[graph.producer[value].user]
    return UsageError(
        f"{user.label} gives {str(t.dtype)[6:]}, tracing has said {graph.values[value].dtype}", code="E123",
        hint="its kernels would misread it: run this function eagerly",
    )  # fmt: skip


def dtype_of(graph: Graph, value: str) -> torch.dtype:
    """The framework's name of a value's element type."""
    return getattr(torch, graph.values[value].dtype)


def shape_of(graph: Graph, value: str) -> tuple[int, ...]:
    """The extents of a value whose shape is known before the run."""
    return tuple(d for d in graph.values[value].shape if isinstance(d, int))


def strides_of(graph: Graph, value: str) -> tuple[int, ...]:
    """The strides of a value, in elements."""
    return tuple(s for s in graph.values[value].strides if isinstance(s, int))


def _is_laid_out(graph: Graph, value: str) -> bool:
    """Whether a value's shape and strides are known before the run."""
    v = graph.values[value]
    return all(isinstance(n, int) for n in (*v.shape, *v.strides))


def allocator(graph: Graph, value: str) -> Callable[[], torch.Tensor]:
    """What gives memory for a value of the graph."""
    return pool.allocator(shape_of(graph, value), strides_of(graph, value), dtype_of(graph, value))


def same_layout(t: torch.Tensor, strides: Sequence[object]) -> bool:
    """Whether a tensor's elements lie in memory as `strides` say (the stride of an axis of one element is immaterial),
    and not with a sign that is still to be changed (`z.conj().imag`)."""
    if t.is_neg():
        return False
    if t.numel() == 0:
        return True
    return all(n == 1 or a == b for n, a, b in zip(t.shape, t.stride(), strides, strict=True))


def restride(t: torch.Tensor, strides: Sequence[object]) -> torch.Tensor:
    """The tensor itself, or a copy with the strides that a kernel was compiled for."""
    if same_layout(t, strides):
        return t
    sizes = tuple(s for s in strides if isinstance(s, int))
    return torch.empty_strided(t.shape, sizes, dtype=t.dtype).copy_(t)
