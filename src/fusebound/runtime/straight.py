"""A plan as one Python function: no table of values, no loop over steps.

On small tensors the interpreter's work around a kernel takes longer than the kernel. Where something raises, the
general form (`executable`) runs the whole plan again and raises what eager does; so a plan that has something that may
raise and cannot be run twice keeps the general form, as do copies at the end, control flow and sizes of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fusebound.capture.replay import inputs_of
from fusebound.codegen.build import Kernel
from fusebound.errors import FuseboundError
from fusebound.ir.graph import Graph
from fusebound.plan.plan import Group
from fusebound.runtime import calls
from fusebound.runtime.calls import fitted, is_plain
from fusebound.runtime.launch import on_one_thread
from fusebound.runtime.pool import pool
from fusebound.runtime.private import profiling
from fusebound.runtime.seed import draw_seed
from fusebound.runtime.steps import largest, launch_of
from fusebound.runtime.views import forms, last, merged, source

Run = Callable[[Sequence[Any]], Any]
"""From the graph's inputs to its outputs."""


def straight(
    graph: Graph, steps: Sequence[tuple[Group, Sequence[str]]], kernels: Mapping[str, Kernel],
    direct: Mapping[str, str], outputs: Sequence[str], general: Run, threads: int,
) -> Run | None:  # fmt: skip
    """A function of the graph's inputs that runs the `steps`, groups each with the values that are dropped after it;
    None where only the general form can.

    `direct` are values that are written straight into an input. While torch's profiler runs, so does `general`, which
    names the kernels.
    """
    own = {g.id: kernels[g.id] for g, _ in steps if g.id in kernels}
    others = {g.id: graph.user[g.users[0]] for g, _ in steps if g.id not in own}
    fresh = [v for k in own.values() for v in k.outputs if v not in direct]
    form, looks = forms(graph, fresh, list(others.values()))
    run = [op for op in others.values() if op not in looks]
    raises = bool(run) or any(k.flags for k in own.values())
    draws = any(graph.seed in k.inputs for k in own.values())
    if not all(is_plain(graph, op) for op in run) or (raises and (direct or draws)):
        return None
    fits = {v: fitted(graph, v) for op in run for v in op.outputs if any(v in k.inputs for k in own.values())}
    if None in fits.values():
        return None
    copied = {v for k in own.values() for v in k.partial}
    kept = {*outputs, *copied, *(v for op in run for v in inputs_of(op))}
    as_view = merged(form, fresh, looks, kept)
    name = {v: f"v{i}" for i, v in enumerate(graph.values)}
    scope: dict[str, Any] = {
        "profiling": profiling, "general": general, "seed": draw_seed,
        "touch": torch.autograd.graph.increment_version,
    }  # fmt: skip
    lines = ["if profiling(): return general(given)"]
    lines += [f"{name[v]} = given[{i}]" for i, v in enumerate(graph.input_ids)]
    if draws:
        lines.append(f"{name[graph.seed]} = seed()")
    for n, (group, drops) in enumerate(steps):
        op, kernel = others.get(group.id), own.get(group.id)
        if kernel is not None:
            for v in kernel.outputs:
                if v in direct:
                    lines += [f"{name[v]} = {name[direct[v]]}", f"touch({name[v]})"]
                    continue
                like = form[last(as_view, v)]
                scope[f"new_{name[v]}"] = pool.allocator(tuple(like.shape), like.stride(), like.dtype)
                lines.append(f"{name[v]} = new_{name[v]}()")
                if v in kernel.partial:
                    lines.append(f"{name[v]}.copy_({name[kernel.partial[v]]})")
            params = [name[v] for v in (*kernel.inputs, *kernel.outputs)]
            native = on_one_thread(kernel, largest(graph, kernel))
            scope[f"kernel{n}"] = native or launch_of(graph, kernel, threads)
            lines.append(f"kernel{n}({', '.join((*params, *(['1'] if native else [])))})")
        elif op in looks:
            part = "" if source(op) in as_view else ".as_strided({}, {}, {})"
            lines += [f"{name[v]} = {name[source(op)]}{part.format(*_place(form[v]))}" for v in op.outputs]
        elif op is not None:
            lines += calls.lines(op, name, scope, f"call{n}")
            scope |= {f"fit_{name[v]}": fits[v] for v in op.outputs if v in fits}
            lines += [f"{name[v]} = fit_{name[v]}({name[v]})" for v in op.outputs if v in fits]
        lines += [f"del {name[v]}" for v in drops]
    lines.append(f"return [{', '.join(name[v] for v in outputs)}]")
    if raises:
        scope["not_eager_s"] = (FuseboundError, MemoryError, torch.OutOfMemoryError)
        lines = ["try:", *(f"    {line}" for line in lines), "except not_eager_s: raise"]
        lines += ["except Exception: pass", "return general(given)"]
    text = "def run(given):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(text, "<fusebound: a plan>", "exec"), scope)
    return scope["run"]


def _place(t: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return tuple(t.shape), t.stride(), int(t.storage_offset())
