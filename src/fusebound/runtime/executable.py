"""A built plan: steps that run kernels and framework operators over a table of values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch

from fusebound.analysis.draws import counted
from fusebound.capture.captured import Captured
from fusebound.capture.overlap import meeting
from fusebound.codegen.build import Kernel
from fusebound.errors import FuseboundError, UsageError
from fusebound.ir.control import control
from fusebound.ir.graph import Input, Mutation, UserOp
from fusebound.plan.plan import Group, Plan
from fusebound.runtime.binding import binder, is_kind, kind, positional, result
from fusebound.runtime.control import Body, control_step, entered
from fusebound.runtime.seed import draw_seed
from fusebound.runtime.steps import (
    Step,
    framework_step,
    kernel_step,
    restride,
    same_layout,
)
from fusebound.runtime.storage import last_reads, lost_views, written_directly
from fusebound.runtime.straight import Run, straight
from fusebound.runtime.written import parts


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds spent building: per kernel, lowering and compiling."""

    kernel: str
    lower_s: float
    compile_s: float
    cached: bool


class Executable:
    """Runs a plan. Call it like the user's function; it must be called with inputs of the captured kind.

    `kernels` are in execution order, those of subgraphs (branches, loop bodies) after the others; `poison` fills every
    buffer that a kernel writes with NaN (or a large integer) before it runs, so that an element that is not written
    shows. `entered` are the subgraphs that have run since it was last cleared. `counted_draws` is how many operators
    derive their random numbers from a seed of each call, and not from the framework's generator.
    """

    def __init__(
        self, plan: Plan, captured: Captured, kernels: dict[str, Kernel], *, threads: int = 0,
        switches: Executable | None = None,
    ) -> None:  # fmt: skip
        self.plan = plan
        self.captured = captured
        own = tuple(kernels[g.id] for g in plan.groups if g.id in kernels)
        self._switches = switches = switches or self
        self.poison = False
        self.entered: set[str] = set()
        self.threads = threads
        graph = captured.graph
        self._nested = {
            name: Executable(p, captured.subgraph(name), kernels, threads=threads, switches=switches)
            for name, p in plan.nested.items()
        }
        self._bodies = {name: _noted(exe.run, name, switches.entered) for name, exe in self._nested.items()}
        self.kernels = (*own, *(k for exe in self._nested.values() for k in exe.kernels))
        self._slot = {v: i for i, v in enumerate(graph.values)}
        self._inputs = [self._slot[v] for v in graph.input_ids]
        self._kinds = [kind(graph.values[v]) for v in graph.input_ids]
        self.counted_draws = sum(counted(graph, u) for u in graph.user_ops) * (plan.numerics != "eager")
        read = {v for k in own for v in k.inputs}
        self._seed = self._slot[graph.seed] if graph.seed in read else -1
        self._positional, self._bind, self._result = positional(captured), binder(captured), result(captured)
        targets = {m.source: m.target for m in graph.mutations}
        self._parts = {m: parts(graph, m) for m in graph.mutations}
        partly = {m.source for m, views in self._parts.items() if views is not None}
        direct = self._direct_values = written_directly(graph, plan, kernels, partly)
        self._steps: list[tuple[Group, Step]] = []
        for group in plan.groups:
            if group.id in kernels:
                step = kernel_step(graph, kernels[group.id], self._slot, direct, switches)
            elif (c := control(graph, op := graph.user[group.users[0]])) is not None:
                step = control_step(op, c, graph, self._slot, self._bodies)
            elif self.counted_draws and counted(graph, graph.user[group.users[0]]):
                step = _idle  # every other such draw is in a kernel: nobody reads this one
            else:
                step = framework_step(graph, graph.user[group.users[0]], self._slot, captured)
            self._steps.append((group, step))
        drops = last_reads(graph, plan)
        self._drop = [[self._slot[v] for v in values] for values in drops]
        self._program = [(step, drop) for (_, step), drop in zip(self._steps, self._drop, strict=True)]
        self._copies = [
            (self._slot[m.target], self._slot[m.source], self._parts[m])
            for m in graph.mutations
            if m.source not in direct
        ]
        self._outputs = [self._slot[targets.get(v, v)] for v in graph.outputs]
        self._views = [framework_step(graph, u, self._slot, captured) for u in lost_views(graph, plan)]
        self._written = [(self._slot[m.target], self._slot[m.source]) for m in graph.mutations]
        self._straight = self._written_out(kernels, drops, [targets.get(v, v) for v in graph.outputs])
        place = {v: i for i, v in enumerate(graph.input_ids)}
        self._apart = {place[p.written]: {place[v] for v in p.others} for p in plan.preconditions}

    def _written_out(
        self, kernels: dict[str, Kernel], drops: list[list[str]], outputs: list[str]
    ) -> Run | None:
        if self._copies or self._views or self._nested:
            return None
        steps = list(zip(self.plan.groups, drops, strict=True))
        graph, direct = self.captured.graph, self._direct_values
        return straight(graph, steps, kernels, direct, outputs, self._stepwise, self.threads)

    @property
    def is_straight(self) -> bool:
        """Whether a call runs the plan written out as one function (`straight`)."""
        return self._straight is not None

    @property
    def copied_back(self) -> dict[str, int]:
        """Inputs that a call changes by a copy at its end, since other reads could see their new contents too early:
        the bytes that each copy moves, by the input's name. Plans do not count them."""
        graph, direct = self.captured.graph, self._direct_values
        names = {i.value: i.target for i in graph.inputs}
        return {
            names[m.target]: 2 * self._written_bytes(m) for m in graph.mutations if m.source not in direct
        }

    def _written_bytes(self, m: Mutation) -> int:
        value, views = self.captured.graph.values[m.target], self._parts[m]
        if views is None:
            return value.nbytes
        whole = torch.empty(value.shape, dtype=torch.uint8, device="meta")  # type: ignore[arg-type]
        return value.type.itemsize * sum(view(whole).numel() for view in views)

    @property
    def timings(self) -> tuple[Timing, ...]:
        return tuple(Timing(k.name, k.lower_s, k.compile_s, k.cached) for k in self.kernels)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on the user's arguments and return the user's structure of outputs.

        Where an argument that is written shares memory with another, the user's function runs; a graph that was
        loaded has none, so that `run` raises.
        """
        flat = self._positional and not kwargs and len(args) == len(self.captured.user_inputs)
        inputs = self._bind(args) if flat else self.captured.bind(args, kwargs)
        broken = self.overlapping(inputs)
        if broken and self.captured.is_ordered:
            with torch.no_grad():
                return self.captured.fn(*args, **kwargs)
        return self._result(self._run(inputs, broken))

    def overlapping(self, inputs: Sequence[Any]) -> str:
        """Which of the plan's preconditions these flat inputs break, in words; "" where they keep them all."""
        met = meeting(inputs, self._apart) if self._apart else None
        if met is None:
            return ""
        graph = self.captured.graph
        a, b = (graph.inputs[i] for i in met)
        source = next(m.source for m in graph.mutations if m.target == a.value)
        maker = graph.producer.get(source)
        by = f", which {graph.user[maker.user].label} writes," if maker is not None else ""
        if a is b:
            return f"{a.target}{by} has elements that several indices reach"
        return f"{a.target}{by} shares memory with {b.target}"

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Run on flat inputs (in the order of the graph's); returns flat outputs.

        Raises UsageError for an input of another shape or dtype, and for a written one that shares memory with
        another (E204); one of another layout is copied, unless it is written.
        """
        return self._run(inputs, self.overlapping(inputs))

    def _run(self, inputs: Sequence[Any], broken: str) -> list[Any]:
        if broken:
            raise UsageError(broken, hint="pass separate tensors", code="E204")
        with torch.no_grad():
            return self.run_plain(
                [
                    t if is_kind(t, kind) else self._fit(i, t)
                    for i, t, kind in zip(self.captured.graph.inputs, inputs, self._kinds, strict=True)
                ]
            )

    def require(self, inputs: Sequence[Any]) -> None:
        """Raise UsageError (E120, E123) for inputs that the kernels were not compiled for."""
        for i, t in zip(self.captured.graph.inputs, inputs, strict=True):
            self._fit(i, t)

    def _fit(self, input: Input, t: Any) -> Any:
        """An input as the kernels were compiled for it."""
        value = self.captured.graph.values[input.value]
        if not isinstance(t, torch.Tensor) and not value.scalar:
            raise UsageError(
                f"{input.target} is a {type(t).__name__}, the plan was built for a tensor", code="E120"
            )
        if not isinstance(t, torch.Tensor) or not value.is_static:
            return t
        if t.shape != value.shape or str(t.dtype) != f"torch.{value.dtype}":
            raise UsageError(
                f"{input.target} is {str(t.dtype)[6:]}{list(t.shape)}, the plan was built for"
                f" {value.dtype}{list(value.shape)}",
                hint="capture again with inputs of this kind, or use fusebound.compile", code="E123",
            )  # fmt: skip
        if same_layout(t, value.strides):
            return t
        repeated = any(n != 1 and s == 0 for n, s in zip(value.shape, value.strides, strict=True))
        if repeated or any(m.target == input.value for m in self.captured.graph.mutations):
            raise UsageError(
                f"{input.target} has strides {t.stride()}{' and is a negative view' if t.is_neg() else ''};"
                f" the plan was built for {value.strides} and"
                f" {'reads one element for many' if repeated else 'writes it'}",
                hint="capture again with inputs of this layout, or use fusebound.compile", code="E123",
            )  # fmt: skip
        return restride(t, value.strides)

    def run_plain(self, inputs: Sequence[Any]) -> list[Any]:
        """`run` for a caller who has checked the inputs and knows that autograd records nothing."""
        if self._straight is not None and not self._switches.poison:
            return self._straight(inputs)
        return self._stepwise(inputs)

    def _stepwise(self, inputs: Sequence[Any]) -> list[Any]:
        env = self._start(inputs)
        done = 0
        try:
            for step, drop in self._program:
                step(env)
                for i in drop:
                    env[i] = None
                done += 1
        except (FuseboundError, MemoryError, torch.OutOfMemoryError):  # not what eager would say
            raise
        except Exception:
            self._raise_first(done, env)
            raise
        return self._finish(env)

    def _raise_first(self, done: int, env: list[Any]) -> None:
        """Run what has not run yet in the user's order, kernels' operators through the framework, and so raise what
        eager raises first, in eager's words."""
        raised, *later = self._steps[done:]
        boundaries = {g.users[0]: step for g, step in later if not g.is_kernel}
        left = {u for g, _ in (raised, *later) for u in g.users}
        for op in self.captured.graph.user_ops:
            if op.name in raised[0].users and not raised[0].is_kernel:
                return
            if op.name in left:
                try:
                    (boundaries.get(op.name) or self._as_operator(op))(env)
                except Exception as first:
                    raise first from first.__cause__  # the kernel's exception is no part of eager's

    def watched(self, inputs: Sequence[Any], see: Callable[[Group, Mapping[str, Any]], None]) -> list[Any]:
        """`run_plain` that shows the values of every group, by id, as its step has left them."""
        env = self._start(inputs)
        with torch.no_grad():
            for group, step in self._walk(env):
                step(env)
                see(group, {v: env[self._slot[v]] for v in group.outputs})
            return self._finish(env)

    def profile(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, rounds: int = 5
    ) -> dict[str, float]:
        """Median microseconds of every step, by group id, over some rounds."""
        samples: dict[str, list[float]] = {g.id: [] for g, _ in self._steps}
        for _ in range(rounds):
            env = self._start(self.captured.bind(args, kwargs))
            with torch.no_grad():
                for group, step in self._walk(env):
                    start = time.perf_counter()
                    step(env)
                    samples[group.id].append((time.perf_counter() - start) * 1e6)
                self._finish(env)
        return {g: median(s) for g, s in samples.items()}

    def duels(self, inputs: Sequence[Any]) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
        """Walk through the plan once, and into what control flow does first; for every kernel group, yield two ways to
        compute it where its inputs are ready: the kernel, and its operators through the framework. The kernel's results
        are kept. Groups that write into an input are run but not offered, nor are groups that draw random numbers: no
        framework operator draws the same."""
        env = self._start(inputs)
        graph = self.captured.graph
        for group, step in self._walk(env):
            draws = any(counted(graph, graph.user[u]) for u in group.users)
            written = any(v in self._direct_values for v in group.outputs)
            if group.is_kernel and not draws and not written:
                operators = [self._as_operator(graph.user[u]) for u in group.users]
                yield group.id, partial(step, env), partial(_run_all, operators, list(env))
            if (c := control(graph, graph.user[group.users[0]])) is not None:
                for name, operands in entered(c, self._slot, env, self._bodies):
                    yield from self._nested[name].duels(operands)
            step(env)

    def _walk(self, env: list[Any]) -> Iterator[tuple[Group, Step]]:
        """Every group with its step, for a caller who runs it; its values are dropped after their last reader.
        (`_stepwise` has this loop written out: it is in every call.)"""
        for (group, step), drop in zip(self._steps, self._drop, strict=True):
            yield group, step
            for i in drop:
                env[i] = None

    def _as_operator(self, op: UserOp) -> Step:
        """An operator of a kernel through the framework."""
        return framework_step(self.captured.graph, op, self._slot, self.captured)

    def _start(self, inputs: Sequence[Any]) -> list[Any]:
        env: list[Any] = [None] * len(self._slot)
        for slot, value in zip(self._inputs, inputs, strict=True):
            env[slot] = value
        if self._seed >= 0:
            env[self._seed] = draw_seed()
        return env

    def _finish(self, env: list[Any]) -> list[Any]:
        """Copy mutations back once nothing reads the old contents any more, and collect the outputs."""
        for target, source, views in self._copies:
            if env[target] is env[source]:
                continue
            for view in views if views is not None else (_whole,):
                view(env[target]).copy_(view(env[source]))
        if self._views:
            for target, source in self._written:
                env[source] = env[target]
            _run_all(self._views, env)
        return [env[i] for i in self._outputs]


def _whole(t: torch.Tensor) -> torch.Tensor:
    return t


def _idle(env: list[Any]) -> None:
    """No step."""


def _noted(body: Body, name: str, seen: set[str]) -> Body:
    """The body, which writes its name down whenever it runs."""

    def run(operands: Sequence[Any]) -> list[Any]:
        seen.add(name)
        return body(operands)

    return run


def _run_all(steps: Sequence[Step], env: list[Any]) -> None:
    for step in steps:
        step(env)
