"""A random graph of primitives, planned, its kernels built and run one after another over guarded memory."""

from __future__ import annotations

from random import Random

import torch
from tests.property import kernels
from tests.property.graphs import Drawn, draw
from tests.property.judge import FOREVER, PLANNED_FOR, Found
from tests.unit.capture.interp import primitive
from tests.unit.capture.interp import run as interpret

from fusebound.codegen.build import compile_group, kernel_name
from fusebound.ir.graph import Graph
from fusebound.ir.spec import verify
from fusebound.ir.text import print_graph
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.target import get

NARROW = ("bfloat16", "float16")


def check(seed: int) -> Found:
    """The framework's bits in every value that the plan keeps, under a policy and a number of threads from the seed."""
    r = Random(seed)
    made = draw(r)
    if made is None:
        return Found("no operator applies")
    policy, threads = r.choices(("tile", "loop", "elementwise"), (4, 1, 1))[0], r.choice((1, 1, 2, 3))
    g = made.graph
    verify(g)
    halves = any(v.dtype in NARROW for v in g.values.values())
    numerics = "eager" if halves else "accurate"
    p = plan(g, target=get(PLANNED_FOR), policy=policy, numerics=numerics, expected_calls=FOREVER)
    why = "" if any(len(k.users) > 1 for k in p.kernels) else "no kernel of several operators"
    return Found(why, _differs(made, p, numerics, threads))


def _differs(made: Drawn, p: Plan, numerics: str, threads: int) -> str:
    g = made.graph
    want: dict[str, torch.Tensor] = dict(made.inputs)
    interpret(g, want, {})
    env: dict[str, torch.Tensor] = dict(made.inputs)
    for group in p.groups:
        if not group.is_kernel:
            for id in group.nodes:
                node = g.node[id]
                env[node.out] = primitive(g, node, [env[i] for i in node.inputs])
            continue
        name = kernel_name(group.users, group.id)
        kernel = compile_group(g, group.nodes, get("host"), name=name, numerics=numerics)
        given = {v: kernels.with_strides(g, v, env[v]) for v in kernel.inputs}
        env |= kernels.run(g, kernel, given, threads=threads)
        for v in kernel.outputs:
            if wrong := wrong_elements(g, group.nodes, v, env[v], want[v]):
                return f"%{v}: {wrong}\n{print_graph(g)}{kernel.source}"
    return ""


def wrong_elements(
    g: Graph, nodes: tuple[str, ...] | list[str], value: str, got: torch.Tensor, want: torch.Tensor
) -> str:
    """The first element that is not the framework's, or nothing."""
    wrong = ~kernels.same(got, want)
    halves = any(g.values[v].dtype in NARROW for n in nodes for v in g.node[n].outputs)
    if halves and any(g.node[n].op == "sum" for n in nodes):
        # Integers above a narrow type's mantissa: the kernel rounds their sum once, the framework every step.
        wrong &= ~torch.isclose(got.double(), want.double(), rtol=0.06, atol=0.5)
        wrong &= got.isfinite() & want.isfinite()
    return f"{got[wrong][0]} for {want[wrong][0]}" if wrong.any() else ""
