"""From a group of a plan to machine code."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fusebound.analysis.space import Refusal, unify
from fusebound.codegen import annotations, cache, jit, llvm, lower, order, spec, tile
from fusebound.codegen.assembly import Resources, resources
from fusebound.errors import BuildError
from fusebound.ir.graph import Graph
from fusebound.ir.maps import Affine
from fusebound.target.target import Target

WIDE = frozenset(("float64", "int64"))


@dataclass(frozen=True)
class Kernel:
    """One compiled group.

    `inputs` and `outputs` are value ids in the order of the kernel's pointer arguments; `in_place` maps outputs that
    may be written over an input (every read of it is at the point that is written) to that input, `partial` those of
    which it stores what differs from an input: their memory has to hold that input's elements before.
    `cached` says that the machine code came from disk; times are seconds.
    """

    name: str
    program: tile.Kernel
    llvm: str
    compiled: jit.Compiled
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    in_place: Mapping[str, str]
    partial: Mapping[str, str]
    cached: bool
    lower_s: float
    compile_s: float

    @property
    def address(self) -> int:
        """Entry point `void (ptr args, i32 threads)`."""
        return self.compiled.address(self.name)

    @property
    def fresh_address(self) -> int:
        """Entry point for outputs in memory that was never touched; the same where stores are ordinary."""
        return self.compiled.address(self.name + llvm.FRESH) if self.program.streams else self.address

    @property
    def tiles(self) -> int:
        return self.program.tiles

    @cached_property
    def flags(self) -> bool:
        """Whether the kernel may raise a flag (an index out of range, an integer division by zero)."""
        return "store atomic" in self.llvm

    @cached_property
    def source(self) -> str:
        """The tile program as text."""
        return tile.show(self.program)

    @cached_property
    def orders(self) -> tuple[order.Order, ...]:
        """In which order each sum and product is added up, whatever the number of threads."""
        return tuple(order.orders(self.program))

    @cached_property
    def asm(self) -> str:
        """The assembly, with the user's operators as comments (generated on demand)."""
        large = "@llvm.prefetch" in self.llvm
        annotated = llvm.emit(self.program, large=large, isa=self.compiled.machine.isa, annotate=True)
        return annotations.restore(jit.assembly(annotated, self.compiled.machine), self.program)

    @cached_property
    def resources(self) -> Resources:
        """What the assembler made of it: vector registers used, spills, stack and code bytes."""
        return resources(self.asm, self.compiled.object)


def _wide(g: Graph, nodes: Collection[str]) -> bool:
    """Whether vectors hold 64-bit elements. A float64 number a row (the sum that a mean divides) does not count."""
    values = [g.values[v] for n in nodes for v in g.node[n].outputs]
    largest = max(v.numel for v in values)
    return any(v.dtype in WIDE and (v.dtype != "float64" or v.numel == largest) for v in values)


def compile_group(
    g: Graph, nodes: Collection[str], target: Target, *, name: str, numerics: str = "accurate",
    cache_dir: Path | None = None,
) -> Kernel:  # fmt: skip
    """Generate, compile and load the kernel of some nodes.

    `cache_dir` is where `cache.compile_cached` keeps machine code between processes (None: nowhere). Raises BuildError
    where the nodes have no common iteration space, which a plan's groups always have, and for a tile program that
    breaks its spec.
    """
    start = time.perf_counter()
    space = unify(g, nodes)
    if isinstance(space, Refusal):
        raise BuildError(f"no kernel for {name}: {space.message}", code="E401")
    bits = jit.vector_bits()
    lanes = max(bits // (64 if _wide(g, nodes) else 32), 1)
    traffic = sum(g.values[v].nbytes for v in (*space.inputs, *space.outputs))
    # A row kernel has its lines in cache when it stores them: measured equal reused, a fifth slower on fresh memory.
    stream = not space.reduced and traffic > target.l3_bytes and jit.has_streaming_stores()
    program = lower.lower(g, nodes, space, name=name, lanes=lanes, numerics=numerics, stream=stream)
    if wrong := spec.faults(g, program):
        raise BuildError(f"the tile program of {name} is unsound: {wrong[0]}")
    text = llvm.emit(program, large=traffic > target.l3_bytes, isa=jit.host().isa)
    lowered = time.perf_counter()
    compiled, cached = cache.compile_cached(text, cache_dir)
    return Kernel(
        name, program, text, compiled, space.inputs, space.outputs, _in_place(g, program), _partial(g, program), cached,
        lowered - start, time.perf_counter() - lowered,
    )  # fmt: skip


def kernel_name(users: Collection[str], group: str) -> str:
    """A telling symbol name: the group and its first operators (`fb_g3_add_layer_norm_gelu`)."""
    stems = [u.rsplit(".", 1)[-1].split("_")[0] if u[-1].isdigit() else u for u in users]
    text = "_".join(dict.fromkeys(stems))
    clean, place = ("".join(c if c.isalnum() else "_" for c in x) for x in (text, group))
    if len(clean) > 60:
        clean = clean[:48] + "_" + hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"fb_{place}_{clean}"


def _partial(g: Graph, k: tile.Kernel) -> dict[str, str]:
    return {
        m.source: m.target for m in g.mutations if any(p.partial and p.value == m.source for p in k.params)
    }


def _in_place(g: Graph, k: tile.Kernel) -> dict[str, str]:
    """Outputs that may share memory with the input that they replace: same type, and each read is of the very
    element that the statement's point writes, so that no element is read after another point has overwritten it."""
    targets = {m.source: m.target for m in g.mutations}
    safe: dict[str, str] = {}
    for slot, p in enumerate(k.params):
        target = targets.get(p.value)
        if not p.written or target is None or g.values[target].dtype != p.dtype:
            continue
        source = next((i for i, q in enumerate(k.params) if q.value == target and not q.written), None)
        if g.values[target].strides != g.values[p.value].strides:
            continue
        if source is None or _pointwise_over(k, source, slot):
            safe[p.value] = target
    return safe


def _pointwise_over(k: tile.Kernel, source: int, slot: int) -> bool:
    """Whether every read of `source` happens once, at the offset and before the store of `slot` in its loop, or in a
    nest that stores nothing there, of elements that no nest stores."""
    nests = [(_ranges(nest), list(tile.statements(nest.body))) for nest in k.nests]
    every = [(at, s) for at, found in nests for s in found if isinstance(s, tile.Store) and s.param == slot]
    for at, found in nests:
        if any(isinstance(s, tile.Pass) for s in found):
            return False
        turns = [s for s in found if isinstance(s, tile.Turn) and s.param in (source, slot)]
        loads = [s for s in found if isinstance(s, tile.Load) and s.param == source]
        stores = [s for s in found if isinstance(s, tile.Store) and s.param == slot]
        if any(s.index >= 0 for s in loads):
            return False
        if turns:  # whole blocks are read before they are written
            if loads or stores or len(k.nests) > 1 or len({t.offset for t in turns}) > 1:
                return False
            continue
        if not stores:
            if not all(_apart(s.offset, at, other.offset, there) for s in loads for there, other in every):
                return False
            continue
        read, written = ({_settled(s.offset, at) for s in some} for some in (loads, stores))
        if read - written or (loads and (len(stores) != 1 or len(read) != 1)):
            return False
    return True


def _ranges(nest: tile.Nest) -> dict[int, tuple[int, int]]:
    """The half-open range of every loop variable of a nest."""
    loops = (*nest.axes, *(s for s in tile.statements(nest.body) if isinstance(s, tile.Loop)))
    return {x.var: (x.lo, x.hi) for x in loops}


def _apart(
    a: Affine, at: Mapping[int, tuple[int, int]], b: Affine, there: Mapping[int, tuple[int, int]]
) -> bool:
    """Whether two offsets of one form, which gives every point an element of its own, meet nowhere."""
    shared = [(at[v], there[v]) for v in a.vars if v in at and v in there]
    return a == b and any(x[1] <= y[0] or y[1] <= x[0] for x, y in shared)


def _settled(e: Affine, at: Mapping[int, tuple[int, int]]) -> Affine:
    """An expression with the values of variables that have but one."""
    fixed = {v: lo for v, (lo, hi) in at.items() if hi - lo == 1}
    const = e.const + sum(c * fixed[v] for v, c in e.terms if v in fixed)
    return Affine(const, tuple((v, c) for v, c in e.terms if v not in fixed))
