"""A plan of kernels alone, written out as one Python function: no table of values, no loop over steps.

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
from fusebound.runtime.private import profiling
from fusebound.runtime.seed import draw_seed
from fusebound.runtime.steps import allocator, largest, launch_of

Run = Callable[[Sequence[Any]], Any]
"""From the graph's inputs to its outputs."""


def straight(
    graph: Graph, steps: Sequence[tuple[Group, Sequence[str]]], kernels: Mapping[str, Kernel],
    direct: Mapping[str, str], outputs: Sequence[str], general: Run, threads: int,
) -> Run | None:  # fmt: skip
    """A function of the graph's inputs that runs the `steps`, groups each with the values that are dropped after it;
    None where a group is no kernel or may raise.

    `direct` are values that are written straight into an input. While torch's profiler runs, so does `general`, which
    names the kernels.
    """
    if not all(g.id in kernels and not kernels[g.id].flags for g, _ in steps):
        return None
    name = {v: f"v{i}" for i, v in enumerate(graph.values)}
    scope: dict[str, Any] = {
        "profiling": profiling, "general": general, "seed": draw_seed,
        "touch": torch.autograd.graph.increment_version,
    }  # fmt: skip
    lines = ["if profiling(): return general(given)"]
    lines += [f"{name[v]} = given[{i}]" for i, v in enumerate(graph.input_ids)]
    if any(graph.seed in kernels[g.id].inputs for g, _ in steps):
        lines.append(f"{name[graph.seed]} = seed()")
    for n, (group, drops) in enumerate(steps):
        kernel = kernels[group.id]
        for v in kernel.outputs:
            if v in direct:
                lines += [f"{name[v]} = {name[direct[v]]}", f"touch({name[v]})"]
            else:
                scope[f"new_{name[v]}"] = allocator(graph, v)
                lines.append(f"{name[v]} = new_{name[v]}()")
                if v in kernel.partial:
                    lines.append(f"{name[v]}.copy_({name[kernel.partial[v]]})")
        params = [name[v] for v in (*kernel.inputs, *kernel.outputs)]
        if (native := on_one_thread(kernel, largest(graph, kernel))) is not None:
            scope[f"kernel{n}"] = native
            params.append("1")
        else:
            scope[f"kernel{n}"] = launch_of(graph, kernel, threads)
        lines.append(f"kernel{n}({', '.join(params)})")
        lines += [f"del {name[v]}" for v in drops]
    lines.append(f"return [{', '.join(name[v] for v in outputs)}]")
    text = "def run(given):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(text, "<fusebound: a plan>", "exec"), scope)
    return scope["run"]
