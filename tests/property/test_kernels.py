"""Random graphs as one kernel: the framework's results exactly, in any layout, on any number of threads.

`FB_EXAMPLES=5000 pytest tests/property` looks further than the everyday run.
"""

from __future__ import annotations

import os
from random import Random

import torch
from hypothesis import event
from hypothesis import strategies as st
from tests.property import kernels
from tests.property.counting import counted
from tests.property.graphs import draw
from tests.property.planned import NARROW, wrong_elements
from tests.unit.capture.interp import run as interpret

from fusebound.analysis.space import Refusal, unify
from fusebound.codegen.build import compile_group
from fusebound.ir.spec import verify
from fusebound.ir.text import print_graph
from fusebound.target import get

EXAMPLES = int(os.environ.get("FB_EXAMPLES", "120"))


def test_one_kernel() -> None:
    assert counted(is_kernel, st.integers(0, 2**40), st.booleans(), examples=EXAMPLES) >= EXAMPLES * 2 // 3


def is_kernel(seed: int, part: bool) -> bool:
    """Whether the graph of a seed, or the latter part of it, is one kernel; asserts that it computes the same."""
    made = draw(Random(seed))
    if made is None:
        return False
    g = made.graph
    verify(g)
    env: dict[str, torch.Tensor] = dict(made.inputs)
    interpret(g, env, {})
    users = [u.name for u in g.user_ops]
    users = users[len(users) // 2 :] if part else users
    nodes = [n.id for n in g.nodes if n.user in users]
    space = unify(g, nodes)
    if isinstance(space, Refusal):
        event(space.code)
        return False
    halves = any(g.values[v].dtype in NARROW for n in nodes for v in g.node[n].outputs)
    kernel = compile_group(g, nodes, get("host"), name="random", numerics="eager" if halves else "accurate")
    given_ = {v: kernels.with_strides(g, v, env[v]) for v in kernel.inputs}
    for v, got in kernels.run(g, kernel, given_, threads=1 + seed % 3).items():
        wrong = wrong_elements(g, nodes, v, got, env[v])
        assert not wrong, f"%{v}: {wrong}\n{print_graph(g)}{kernel.source}"
    return True
