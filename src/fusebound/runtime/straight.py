"""A plan of kernels, and views of what they write, as one Python function: no table of values, no loop over steps.

On small tensors the interpreter's work around a kernel takes longer than the kernel. What may raise, runs through the
framework or is copied back at the end keeps the general form (`executable`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fusebound.codegen.build import Kernel
from fusebound.ir.graph import Graph
from fusebound.plan.plan import Group
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
    None where a group is neither a kernel that cannot raise nor a view of what one writes.

    `direct` are values that are written straight into an input. While torch's profiler runs, so does `general`, which
    names the kernels.
    """
    own = {g.id: kernels[g.id] for g, _ in steps if g.id in kernels}
    looks = {g.id: graph.user[g.users[0]] for g, _ in steps if g.id not in own}
    fresh = [v for k in own.values() for v in k.outputs if v not in direct]
    form = forms(graph, fresh, list(looks.values()))
    if form is None or any(k.flags for k in own.values()):
        return None
    copied = {v for k in own.values() for v in k.partial}
    as_view = merged(form, list(looks.values()), {*outputs, *copied})
    name = {v: f"v{i}" for i, v in enumerate(graph.values)}
    scope: dict[str, Any] = {
        "profiling": profiling, "general": general, "seed": draw_seed,
        "touch": torch.autograd.graph.increment_version,
    }  # fmt: skip
    lines = ["if profiling(): return general(given)"]
    lines += [f"{name[v]} = given[{i}]" for i, v in enumerate(graph.input_ids)]
    if any(graph.seed in k.inputs for k in own.values()):
        lines.append(f"{name[graph.seed]} = seed()")
    for n, (group, drops) in enumerate(steps):
        if (kernel := own.get(group.id)) is None:
            op = looks[group.id]
            part = "" if source(op) in as_view else ".as_strided({}, {}, {})"
            lines += [f"{name[v]} = {name[source(op)]}{part.format(*_place(form[v]))}" for v in op.outputs]
        else:
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
        lines += [f"del {name[v]}" for v in drops]
    lines.append(f"return [{', '.join(name[v] for v in outputs)}]")
    text = "def run(given):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(text, "<fusebound: a plan>", "exec"), scope)
    return scope["run"]


def _place(t: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return tuple(t.shape), t.stride(), int(t.storage_offset())
