"""What every tile program must keep to: no access leaves its memory, every element is stored once, and what a phase
collects was left whole by earlier ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod

from fusebound.codegen import tile
from fusebound.ir.graph import Graph, Value
from fusebound.ir.maps import Affine
from fusebound.words import count

Bounds = Mapping[int, tuple[int, int]]
"""The half-open range of each loop variable."""


def faults(g: Graph, k: tile.Kernel) -> list[str]:
    """Where a tile program breaks the rules; empty for a sound one."""
    found: list[str] = []
    stored = [0] * len(k.params)
    for nest in k.nests:
        blocks = {a.var: (a.lo, a.hi) for a in nest.axes}
        fixed = {a.var: blocks[a.var] for a in nest.axes if a.block == 1}
        sizes = {a.var: a.block for a in nest.axes}
        for s, at in _accesses(nest.body, fixed, blocks, sizes):
            low, high = _reach(s, at)
            name, room = _memory(g, k, s)
            if low < 0 or high >= room:
                found.append(f"{name}[{s.offset}] reaches elements {low} to {high} of {room}")
            if isinstance(s, (tile.Store, tile.Turn)):
                stored[s.param] += prod(hi - lo for lo, hi in at.values())
    for p, times in zip(k.params, stored, strict=True):
        own = _distinct(g.values[p.value])
        if p.written and (times >= own if p.partial else times < own or times % own):
            found.append(f"{p.value} has {count(own, 'element')}, {times} are stored")
    return found + list(_unfinished(k))


def _unfinished(k: tile.Kernel) -> Iterator[str]:
    """Partial results that are collected before all chunks of all rows are left."""
    for p in k.parts:
        phases = [n.phase for n in k.nests for s in tile.statements(n.body) if _is_of(s, tile.Collect, p)]
        left = [n for n in k.nests if any(_is_of(s, tile.Deposit, p) for s in tile.statements(n.body))]
        chunks = [a.count for n in left for a in n.axes if (a.var, a.block) == (p.var, p.block)]
        if chunks != [p.chunks] or any(phase <= left[0].phase for phase in phases):
            yield f"part {p.id} is collected before its {count(p.chunks, 'chunk')} are left"


def _is_of(s: tile.Stmt, kind: type[tile.Deposit | tile.Collect], p: tile.Part) -> bool:
    return isinstance(s, kind) and s.part == p.id


_Access = tile.Load | tile.Store | tile.Keep | tile.Recall | tile.Turn | tile.Deposit | tile.Collect


def _accesses(
    body: Iterable[tile.Stmt], at: Bounds, blocks: Bounds, sizes: Mapping[int, int]
) -> Iterator[tuple[_Access, Bounds]]:
    """Every access with the ranges of the variables around it."""
    for s in body:
        match s:
            case tile.Loop():
                bounds = blocks[s.var] if s.blocked else (s.lo, s.hi)
                yield from _accesses(s.body, {**at, s.var: bounds}, blocks, sizes)
            case tile.Pass():
                yield from _accesses(s.body, at, blocks, sizes)
            case tile.Keep() | tile.Recall() if s.within:
                yield s, {**at, **{v: (0, min(sizes[v], at[v][1] - at[v][0])) for v in s.within}}
            case tile.Turn():
                yield s, {**at, s.across: blocks[s.across], s.along: (s.lo, s.hi)}
            case tile.Load() | tile.Store() | tile.Keep() | tile.Recall() | tile.Deposit() | tile.Collect():
                yield s, at
            case _:
                pass


def _reach(s: _Access, at: Bounds) -> tuple[int, int]:
    """First and last element that a statement touches."""
    low, high = _interval(s.offset, at)
    if isinstance(s, tile.Load) and s.index >= 0:
        high += s.stride * (s.limit - 1)
    return low, high


def _interval(e: Affine, at: Bounds) -> tuple[int, int]:
    ends = [(c * at[v][0], c * (at[v][1] - 1)) for v, c in e.terms]
    return e.const + sum(map(min, ends)), e.const + sum(map(max, ends))


def _memory(g: Graph, k: tile.Kernel, s: _Access) -> tuple[str, int]:
    """The name of what a statement touches, and its elements from first to last."""
    if isinstance(s, (tile.Keep, tile.Recall)):
        return f"scratch {s.scratch}", k.scratch[s.scratch].elements
    if isinstance(s, (tile.Deposit, tile.Collect)):
        return f"part {s.part}", k.parts[s.part].rows
    value = k.params[s.param].value
    return value, _span(g.values[value])


def _distinct(v: Value) -> int:
    """Elements with an address of their own; those along an axis of stride 0 may be stored once or many times."""
    sizes = zip(v.shape, v.strides, strict=True)
    return prod(n for n, s in sizes if isinstance(n, int) and s != 0)


def _span(v: Value) -> int:
    steps = zip(v.shape, v.strides, strict=True)
    return 1 + sum((n - 1) * s for n, s in steps if isinstance(n, int) and isinstance(s, int))
