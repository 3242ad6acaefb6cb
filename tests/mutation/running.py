"""Faults of plans and of running them: order, results, mutations, memory, parameters, what is kept between calls."""

# A statement's kind is checked where its number comes from; lambdas bind their own parameters.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from tests.mutation.harness import Subject
from torch.utils import _pytree as pytree

from fusebound.runtime.executable import Executable
from fusebound.runtime.steps import kernel_step

Callee = Callable[..., Any]
RunFault = tuple[str, str, Callable[[Subject], Callee]]


def faults(subject: Subject) -> Iterator[RunFault]:
    """Every fault of this kind, at every site of a program's plan."""
    yield from _steps(subject)
    yield from _results(subject)
    yield from _mutations(subject)
    yield from _memory(subject)
    yield from _calls(subject)


def _steps(subject: Subject) -> Iterator[RunFault]:
    groups = [g.id for g in subject.plan.groups]

    def without(s: Subject, i: int) -> Callee:
        exe = s.executable()
        del exe._program[i]
        return exe

    def exchanged(s: Subject, i: int) -> Callee:
        exe = s.executable()
        exe._program[i : i + 2] = exe._program[i : i + 2][::-1]
        return exe

    for i, g in enumerate(groups):
        yield "step left out", g, lambda s, i=i: without(s, i)
    for i, g in enumerate(groups[:-1]):
        yield "steps exchanged", f"{g} {groups[i + 1]}", lambda s, i=i: exchanged(s, i)


def _results(subject: Subject) -> Iterator[RunFault]:
    graph = subject.captured.graph
    kinds = [(graph.values[v].shape, graph.values[v].dtype) for v in graph.outputs]

    def exchanged(s: Subject, i: int, slot: int) -> Callee:
        exe = s.executable()
        exe._outputs[i] = slot
        return exe

    slots = {v: i for i, v in enumerate(graph.values)}
    for i, v in enumerate(graph.outputs):
        for other in dict.fromkeys((*graph.outputs, *graph.input_ids)):
            value = graph.values[other]
            if other != v and (value.shape, value.dtype) == kinds[i]:
                yield "another result", f"{v}: {other}", lambda s, i=i, o=slots[other]: exchanged(s, i, o)


def _mutations(subject: Subject) -> Iterator[RunFault]:
    graph = subject.captured.graph

    def lost(s: Subject, target: str, source: str) -> Callee:
        kernels = {
            g: replace(k, in_place={v: t for v, t in k.in_place.items() if v != source})
            for g, k in s.kernels.items()
        }
        exe = s.executable(**kernels)
        exe._copies = [c for c in exe._copies if c[:2] != (exe._slot[target], exe._slot[source])]
        return exe

    for m in graph.mutations:
        yield "mutation lost", m.target, lambda s, m=m: lost(s, m.target, m.source)


def unguarded(s: Subject) -> Callee:
    """The kernels run whatever memory the arguments share."""
    exe = s.executable()
    exe._apart = {}
    return exe


def _memory(subject: Subject) -> Iterator[RunFault]:
    """A kernel writes over an input, or over its own earlier output."""
    graph = subject.captured.graph

    def over(s: Subject, group: str, value: str, target: str) -> Callee:
        exe = s.executable()
        direct = {**exe._direct_values, value: target}
        step = kernel_step(graph, s.kernels[group], exe._slot, direct, exe)
        at = next(i for i, g in enumerate(s.plan.groups) if g.id == group)
        exe._program[at] = (step, exe._program[at][1])
        return exe

    for group, k in subject.kernels.items():
        for i, v in enumerate(k.outputs):
            kind = graph.values[v]
            for t in (*k.inputs, *k.outputs[:i]):
                other = graph.values[t]
                if (other.shape, other.strides, other.dtype) == (
                    kind.shape,
                    kind.strides,
                    kind.dtype,
                ) and k.in_place.get(v) != t:
                    yield (
                        "memory of another value",
                        f"{v} in {t}",
                        lambda s, g=group, v=v, t=t: over(s, g, v, t),
                    )


def _calls(subject: Subject) -> Iterator[RunFault]:
    if any(i.kind in ("param", "buffer") for i in subject.captured.graph.inputs):
        yield "stale parameters", "all", _stale
    yield "results of the first call", "all", _first_results
    if subject.captured.graph.outputs:
        yield "results in one buffer", "all", _one_buffer
        yield "result in another type", "all", lambda s: _changed(s, _retyped)
        yield "result with other strides", "all", lambda s: _changed(s, _restrided)
        yield "result off with more threads", "all", lambda s: _changed(s, _threaded)
    yield "input changed", "first", _input_changed
    if subject.executable().counted_draws:
        yield "the same numbers in every call", "all", _seeded


def _stale(s: Subject) -> Callee:
    held = {k: get().clone() for k, get in s.captured.state.items()}
    state = {k: partial(held.__getitem__, k) for k in held}
    return Executable(s.plan, replace(s.captured, state=state), dict(s.kernels))


def _first_results(s: Subject) -> Callee:
    exe, held = s.executable(), list[Any]()

    def call(*args: Any) -> Any:
        if not held:
            held.append(exe(*args))
        return held[0]

    return call


def _one_buffer(s: Subject) -> Callee:
    exe, buffers = s.executable(), list[torch.Tensor]()

    def call(*args: Any) -> Any:
        flat, spec = pytree.tree_flatten(exe(*args))
        if not buffers:
            buffers.extend(t.clone() for t in flat)
        return pytree.tree_unflatten([b.copy_(t) for b, t in zip(buffers, flat, strict=True)], spec)

    return call


def _changed(s: Subject, change: Callable[[torch.Tensor], torch.Tensor]) -> Callee:
    exe = s.executable()
    return lambda *args: pytree.tree_map_only(torch.Tensor, change, exe(*args))


def _retyped(t: torch.Tensor) -> torch.Tensor:
    return t.to(torch.float64 if t.dtype != torch.float64 else torch.float32)


def _restrided(t: torch.Tensor) -> torch.Tensor:
    """Every element two apart."""
    return torch.stack([t, t], -1)[..., 0]


def _threaded(t: torch.Tensor) -> torch.Tensor:
    return t + 1 if torch.get_num_threads() > 1 else t


def _input_changed(s: Subject) -> Callee:
    exe = s.executable()

    def call(*args: Any) -> Any:
        result = pytree.tree_map_only(torch.Tensor, torch.clone, exe(*args))
        args[0].add_(1)
        return result

    return call


def _seeded(s: Subject) -> Callee:
    exe = s.executable()

    def call(*args: Any) -> Any:
        torch.manual_seed(5)
        return exe(*args)

    call.counted_draws = exe.counted_draws  # type: ignore[attr-defined]
    return call
