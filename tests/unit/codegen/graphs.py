"""Small graphs of primitives, and kernels made of all their nodes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

import torch
from tests.unit.capture.interp import run as interpret

from fusebound.analysis.space import Refusal, Space, unify
from fusebound.codegen import jit, llvm, tile
from fusebound.codegen.lower import lower
from fusebound.ir.builder import Builder
from fusebound.ir.graph import Graph


def graph(make: Callable[[Builder], str | Sequence[str]]) -> Graph:
    """A graph whose primitives all belong to one user operator; `make` returns its outputs."""
    b = Builder("small")
    names = make(b)
    outputs = [names] if isinstance(names, str) else list(names)
    b.end("test", (), (), outputs, "pointwise")
    return b.finish(outputs)


def nodes(g: Graph) -> list[str]:
    return [n.id for n in g.nodes]


def placed(g: Graph) -> Space:
    """The space of all nodes, which must exist."""
    space = unify(g, nodes(g))
    assert isinstance(space, Space), space
    return space


def refused(g: Graph) -> Refusal:
    """The reason why all nodes have no common space."""
    refusal = unify(g, nodes(g))
    assert isinstance(refusal, Refusal)
    return refusal


def program(g: Graph, lanes: int = 16, numerics: str = "accurate", stream: bool = False) -> tile.Kernel:
    """The tile program of all nodes."""
    return lower(g, nodes(g), placed(g), name="k", lanes=lanes, numerics=numerics, stream=stream)


def values(g: Graph, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Every value by the framework's operators."""
    env: dict[str, torch.Tensor] = dict(inputs)
    interpret(g, env, {})
    return env


def run(
    g: Graph,
    inputs: Mapping[str, torch.Tensor],
    *,
    lanes: int = 16,
    machine: jit.Machine | None = None,
    threads: int = 1,
) -> dict[str, torch.Tensor]:
    """The outputs of the kernel for a machine with vectors of `lanes`."""
    k = program(g, lanes)
    isa = (machine or jit.host()).isa
    compiled = jit.compile_module(llvm.emit(k, large=False, isa=isa), machine=machine)
    out = {
        p.value: torch.empty(g.values[p.value].shape, dtype=getattr(torch, p.dtype))
        for p in k.params
        if p.written
    }
    tensors = [out[p.value] if p.written else inputs[p.value] for p in k.params]
    flag = ctypes.c_int32(0)
    array = (ctypes.c_int64 * (len(tensors) + 1))(*(t.data_ptr() for t in tensors), ctypes.addressof(flag))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(compiled.address("k"))(
        ctypes.byref(array), threads
    )
    assert flag.value == 0
    return out
