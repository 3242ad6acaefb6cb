"""Runs one kernel of a graph over guarded memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from fusebound.codegen.build import Kernel
from fusebound.ir.graph import Graph
from fusebound.runtime.launch import launcher

GUARD = 128
"""Elements before and after an output that a kernel must leave alone."""


def run(
    g: Graph, kernel: Kernel, env: Mapping[str, torch.Tensor], *, threads: int = 1
) -> dict[str, torch.Tensor]:
    """The kernel's outputs by value id, from tensors with the graph's strides.

    Asserts that nothing outside of the outputs was written.
    """
    rooms = {v: room(g, v) for v in kernel.outputs}
    before = {v: whole.clone() for v, (whole, _) in rooms.items()}
    launcher(kernel, 1 << 40, threads)(*(env[v] for v in kernel.inputs), *(t for _, t in rooms.values()))
    for v, (whole, _) in rooms.items():
        held = torch.cat([whole[:GUARD], whole[-GUARD:]]).view(torch.uint8)
        was = torch.cat([before[v][:GUARD], before[v][-GUARD:]]).view(torch.uint8)
        assert torch.equal(held, was), f"%{v} is written outside of its memory"
    return {v: t for v, (_, t) in rooms.items()}


def room(g: Graph, value: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Poisoned memory around and for a value: all of it, and the value's part."""
    v = g.values[value]
    shape, strides = _ints(v.shape), _ints(v.strides)
    dtype = getattr(torch, v.dtype)
    whole = torch.empty(span(g, value) + 2 * GUARD, dtype=dtype)
    whole.fill_(float("nan") if dtype.is_floating_point else True if dtype == torch.bool else 99)
    return whole, whole.as_strided(shape, strides, GUARD)


def with_strides(g: Graph, value: str, t: torch.Tensor) -> torch.Tensor:
    """A tensor in the layout that the graph gives a value."""
    strides = _ints(g.values[value].strides)
    return t if t.stride() == strides else torch.empty_strided(t.shape, strides, dtype=t.dtype).copy_(t)


def span(g: Graph, value: str) -> int:
    """Elements from the first to the last of a value."""
    v = g.values[value]
    return 1 + sum((n - 1) * s for n, s in zip(_ints(v.shape), _ints(v.strides), strict=True))


def same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Elementwise: equal, or both NaN."""
    return (a == b) | ((a != a) & (b != b))


def _ints(xs: Collection[object]) -> tuple[int, ...]:
    return tuple(x for x in xs if isinstance(x, int))
