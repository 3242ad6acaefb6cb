"""From a plan to an executable: compiles every kernel group."""

from __future__ import annotations

import sys

from fusebound import settings
from fusebound.capture.torch import Captured
from fusebound.codegen.build import Kernel, compile_group, kernel_name
from fusebound.errors import UsageError
from fusebound.plan.plan import Plan
from fusebound.runtime.executable import Executable
from fusebound.target import get
from fusebound.target.load import load_table, table_names
from fusebound.target.target import Target
from fusebound.words import count


def build(plan: Plan, captured: Captured, *, target: Target | None = None, threads: int = 0) -> Executable:
    """Generate and load the kernels of a plan.

    `target` is the machine that the code is for (`host` by default; a plan for another CPU runs on this one's
    vectors). `threads` 0 follows torch. Raises BuildError for a kernel that cannot be generated, UsageError where
    the plan belongs to another graph (E130) or is for a GPU (E131).
    """
    if plan.graph_key != captured.graph.key:
        raise UsageError(
            "the plan was made for another graph", where=f"plan of {plan.graph_key}, graph {captured.graph.key}",
            hint="plan this graph again, or pass the function that the plan was made for", code="E130",
        )  # fmt: skip
    if plan.target in table_names() and load_table(plan.target).kind != "cpu":
        raise UsageError(
            f"kernels for {plan.target} cannot run here", where=f"plan of {plan.graph.name} for {plan.target}",
            hint="a plan for a GPU can be read and asked (`plan`, `why`, `log`); plan for `host` to build", code="E131",
        )  # fmt: skip
    machine = target or get("host")
    kernels = {
        g.id: compile_group(
            p.graph, g.nodes, machine, name=kernel_name(g.users, g.id), numerics=plan.numerics,
            cache_dir=settings.cache_directory(create=False),
        )
        for _, p in plan.everywhere()
        for g in p.groups
        if g.is_kernel
    }  # fmt: skip
    _show(plan, kernels)
    return Executable(plan, captured, kernels, threads=threads)


def _show(plan: Plan, kernels: dict[str, Kernel]) -> None:
    """What FB_DEBUG asks to see, on stderr: 1 a summary, 2 groups, 3 verdicts, 4–6 code."""
    level = settings.current().debug
    if level < 1:
        return
    counts = f"{count(len(kernels), 'kernel')} of {count(len(plan.groups), 'step')}"
    lines = [f"fusebound: {plan.graph.name}: {counts}, {plan.policy}"]
    if level >= 2:
        steps = [g for _, p in plan.everywhere() for g in p.groups]
        lines += [f"  {g.id} {g.kind}: {', '.join(g.users)} ({g.predicted_us:.1f} µs)" for g in steps]
    if level >= 3:
        for prefix, p in plan.everywhere():
            for d in p.decisions:
                verb = "fused " if d.accepted else "refused"
                why = d.judgement.first or d.judgement.gain
                lines.append(f"  {verb} {prefix}{d.a} + {prefix}{d.b}: {why}")
    for k in kernels.values():
        lines += [k.source] if level >= 4 else []
        lines += [k.llvm] if level >= 5 else []
        lines += [k.asm] if level >= 6 else []
    print("\n".join(lines), file=sys.stderr)
