"""Resources (F3xx): evaluations and arguments; on a CPU registers and tile scratch, on a GPU registers, shared memory
and blocks."""

from __future__ import annotations

from collections.abc import Iterator

from fusebound.analysis.numerics import reduces
from fusebound.analysis.roofline import bandwidth, spill_bytes, spill_us
from fusebound.analysis.rows import row_scratch
from fusebound.analysis.space import Refusal, Space
from fusebound.gates.base import Candidate, Evidence, Facts, Verdict, first, passed
from fusebound.target.target import Target
from fusebound.textbook.checker import REGISTER_LIMIT
from fusebound.textbook.operator import REGISTERS
from fusebound.words import count

GATE = "resources"

MAX_ARGUMENTS = 128
"""Pointers of one kernel call; CUDA passes 4 KB of parameters, and a CPU call gains nothing from more."""

MAX_OUTPUTS = 16
"""Streams that one loop writes: first-level caches have 8 to 16 ways, more streams evict one another's lines."""

MAX_EVALUATIONS = 2000
"""Primitive evaluations of one kernel body: code beyond this leaves the instruction cache and
compiles for seconds."""

BASE_REGISTERS = 16
"""Registers of a GPU thread for addresses, masks and loop counters."""

ELEMENTS = (4, 2, 1)
"""Elements of a GPU thread, widest loads first."""


def check(c: Candidate, facts: Facts) -> Verdict:
    """The target's limits, applied to the merged group's iteration space."""
    space = c.space
    if isinstance(space, Refusal):
        if space.code == "F303":
            return Verdict(
                GATE, "fail", "F303", space.message, space.nodes, (), "store a shared value between them"
            )
        return Verdict(GATE, "fail", space.code, "not judged: no common iteration space", space.nodes)
    return first(_checks(c, facts.target, space))


def _checks(c: Candidate, t: Target, space: Space) -> Iterator[Verdict | None]:
    yield _arguments(c, space)
    yield _evaluations(c, space)
    yield _gpu(c, t, space) if t.kind == "gpu" else _cpu(c, t, space)


def _arguments(c: Candidate, space: Space) -> Verdict | None:
    counts = (
        ("tensors", len(space.inputs) + len(space.outputs), MAX_ARGUMENTS),
        ("outputs", len(space.outputs), MAX_OUTPUTS),
    )
    over = next(((what, n, limit) for what, n, limit in counts if n > limit), None)
    if over is None:
        return None
    what, n, limit = over
    evidence = (Evidence.bound(what, n, limit, ""),)
    text = f"one kernel of {_names(c)} would have {n} {what}"
    return Verdict(GATE, "fail", "F304", text, (), evidence, f"{n - limit} {what} fewer")


def _evaluations(c: Candidate, space: Space) -> Verdict | None:
    if space.evaluations <= MAX_EVALUATIONS:
        return None
    evidence = (
        Evidence.bound("evaluations after inlining", space.evaluations, MAX_EVALUATIONS, ""),
        Evidence("primitives", len(c.nodes)),
    )
    text = f"inlining {count(len(c.nodes), 'primitive')} of {_names(c)} gives {space.evaluations} evaluations"
    return Verdict(GATE, "fail", "F303", text, (), evidence, "store a shared value between them")


def _cpu(c: Candidate, t: Target, space: Space) -> Verdict:
    scratch = row_scratch(c.graph, c.nodes, space)
    spilled = spill_bytes(space, t)
    moved = 2 * scratch * space.outer if scratch > t.l2_bytes else 0
    evidence = (
        Evidence.bound("live vector registers", space.live_vectors, t.vector_registers, ""),
        Evidence("spill bytes", spilled, unit="B"),
        Evidence.bound("row scratch", scratch, t.l2_bytes, "B"),
        Evidence(
            "row scratch against L1",
            scratch,
            "≤",
            t.l1_bytes,
            "B",
            margin=t.l1_bytes - scratch,
        ),
        Evidence("evaluations after inlining", space.evaluations),
        Evidence("arguments", len(space.inputs) + len(space.outputs), "≤", MAX_ARGUMENTS),
    )
    saved = c.saved_bytes
    if spill_us(space, t) > max(saved, 0) / t.l2_bandwidth:
        return _spills(c, t, space, evidence)
    if moved and moved / bandwidth("l3", t) > max(saved, 0) / t.dram_bandwidth:
        text = (
            f"a row of {_names(c)} needs {scratch} B of scratch, more than the L2 cache "
            f"({t.l2_bytes} B), and moves {moved} B to the next level to save {max(saved, 0)} B"
        )
        flip = f"rows shorter by a factor of {scratch / t.l2_bytes:.2g}"
        return Verdict(GATE, "fail", "F302", text, (), evidence, flip)
    return passed(GATE, f"{space.live_vectors} of {t.vector_registers} vector registers", evidence)


def _spills(c: Candidate, t: Target, space: Space, evidence: tuple[Evidence, ...]) -> Verdict:
    """Refused by the count alone: even bytes saved in the L2 cache, the cheapest, would be worth less."""
    excess = space.live_vectors - t.vector_registers
    saved = max(c.saved_bytes, 0) / t.l2_bandwidth
    text = (
        f"{_names(c)} in one kernel keep {space.live_vectors} vectors live at once, {t.name} has "
        f"{t.vector_registers} registers: spills would move {spill_bytes(space, t)} B, which takes longer "
        f"than the {max(c.saved_bytes, 0)} B saved would from the L2 cache"
    )
    facts = (*evidence, Evidence.bound("spill time against saved L2 time", spill_us(space, t), saved, "µs"))
    return Verdict(GATE, "fail", "F301", text, (), facts, f"{count(excess, 'value')} fewer live at once")


def _gpu(c: Candidate, t: Target, space: Space) -> Verdict:
    scratch = row_scratch(c.graph, c.nodes, space)
    evidence = _gpu_evidence(c, t, space, scratch)
    if BASE_REGISTERS + space.live_vectors > t.max_registers_per_thread:
        need = BASE_REGISTERS + space.live_vectors
        text = (
            f"a thread of {_names(c)} needs {need} registers at one element each; {t.name} allows "
            f"{t.max_registers_per_thread}"
        )
        flip = f"{count(need - t.max_registers_per_thread, 'value')} fewer live at once"
        return Verdict(GATE, "fail", "F311", text, (), evidence, flip)
    if scratch > t.shared_optin_bytes:
        text = (
            f"a row of {_names(c)} kept on chip needs {scratch} B of shared memory; a block of "
            f"{t.name} may have {t.shared_optin_bytes} B"
        )
        flip = f"rows shorter by a factor of {scratch / t.shared_optin_bytes:.2g}"
        return Verdict(GATE, "fail", "F312", text, (), evidence, flip)
    return _blocks(c, t, space, scratch, evidence)


def _blocks(c: Candidate, t: Target, space: Space, scratch: int, evidence: tuple[Evidence, ...]) -> Verdict:
    sizes = [_block(c, side, t) for side in (c.a, c.b)]
    block = max(sizes)
    registers = registers_per_thread(space, t)
    facts = (
        *evidence,
        Evidence("block sizes preferred", f"{sizes[0]} and {sizes[1]}", "≤", t.max_threads_per_block),
    )
    if t.registers_per_sm and registers * block > t.registers_per_sm:
        text = (
            f"{_names(c)} need one block of {block} threads with {registers} registers each; no SM of "
            f"{t.name} holds it"
        )
        limit = t.registers_per_sm // max(registers, 1)
        return Verdict(GATE, "fail", "F313", text, (), facts, f"blocks of at most {count(limit, 'thread')}")
    if scratch > t.shared_static_bytes:
        text = f"{scratch} B of shared memory need the opt-in limit"
        return Verdict(GATE, "conditional", "F312", text, (), facts, f"at most {t.shared_static_bytes} B")
    return passed(GATE, f"{count(registers, 'register')} per thread, blocks of {block}", facts)


def registers_per_thread(space: Space, t: Target) -> int:
    """Live ranges times the elements of a thread, at the widest access that fits the limit."""
    for elements in ELEMENTS:
        need = BASE_REGISTERS + space.live_vectors * elements
        if need <= t.max_registers_per_thread:
            return need
    return BASE_REGISTERS + space.live_vectors


def textbook_registers(c: Candidate) -> int:
    """Σ regs(op) over the user's operators, as taught."""
    sides = ([n.id for n in c.graph.members[u]] for u in c.users())
    return sum(REGISTERS["reduce" if reduces(c.graph, side) else "elementwise"] for side in sides)


def _gpu_evidence(c: Candidate, t: Target, space: Space, scratch: int) -> tuple[Evidence, ...]:
    registers = registers_per_thread(space, t)
    threads = t.registers_per_sm // max(registers, 1)
    occupancy = min(threads / t.max_threads_per_sm, 1.0) if t.max_threads_per_sm else 1.0
    return (
        Evidence.bound("registers per thread by live ranges", registers, t.max_registers_per_thread, ""),
        Evidence(
            "textbook register sum (F314)",
            textbook_registers(c),
            "≤",
            REGISTER_LIMIT,
            margin=float(REGISTER_LIMIT - textbook_registers(c)),
        ),
        Evidence.bound("shared memory", scratch, t.shared_optin_bytes, "B"),
        Evidence("occupancy by registers", occupancy),
    )


def _block(c: Candidate, side: frozenset[str], t: Target) -> int:
    """Threads of the block that one side would choose: a row's worth for reductions, 256 otherwise."""
    g = c.graph
    reductions = (g.node[i] for i in side if reduces(g, (i,)))
    rows = [g.values[n.inputs[0]].numel // max(g.values[n.out].numel, 1) for n in reductions]
    if not rows:
        return min(256, t.max_threads_per_block)
    threads = 32
    while threads * 4 < max(rows) and threads < t.max_threads_per_block:
        threads *= 2
    return threads


def _names(c: Candidate) -> str:
    users = c.users()
    g = c.graph
    if len(users) <= 3:
        return ", ".join(g.user[u].label for u in users)
    return f"{g.user[users[0]].label} … {g.user[users[-1]].label} ({len(users)} operators)"
