"""The time model: overhead + max(bytes / bandwidth of their level, instructions / rate) + faults + spills."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import ceil, prod

from fusebound.analysis.access import ints
from fusebound.analysis.alias import is_free, is_view, is_write_back
from fusebound.analysis.group import in_order
from fusebound.analysis.repeats import repeats
from fusebound.analysis.space import Refusal, Space
from fusebound.analysis.traffic import Traffic, kernel_traffic, level, own_nodes, user_traffic
from fusebound.ir.control import control
from fusebound.ir.graph import Graph, Node, UserOp, hint
from fusebound.ir.ops import OPS, spec_of
from fusebound.target.target import Target

FRESH_BYTES = 8 << 20
"""Outputs from this size up are fresh memory on every eager call (measured: 2.8× slower at 8 MB, 9–17× from 16 MB)."""

GPU_BLOCK_POINTS = 1024
"""Points of one GPU block: 256 threads of 4 elements."""

CACHED_RUNS = 20
"""Processes that one compilation serves: kernels stay on disk until a shape, the processor or the version changes."""

GATHER = 5
"""Vector instructions in the time of one lane that is gathered."""

SHUFFLED = 4
"""Elements that lie so few apart are not gathered: vectors are loaded whole and shuffled (`codegen.strided`)."""

_EAGER_KERNELS = {
    "rms_norm": 4,
    "cross_entropy_loss": 2,
    "log_sigmoid": 2,
    "huber_loss": 3,
    "smooth_l1_loss": 2,
}
"""Passes over memory of composites that ATen itself runs as several kernels (ATen's composite implementations)."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Time of one launch in µs, by cause.

    `recompute` is the part of the total that is spent on evaluating values again; it is contained in `compute`.
    """

    overhead: float = 0.0
    memory: float = 0.0
    compute: float = 0.0
    fault: float = 0.0
    spill: float = 0.0
    recompute: float = 0.0

    @property
    def total(self) -> float:
        return self.overhead + max(self.memory, self.compute) + self.fault + self.spill


def kernel_cost(
    g: Graph, nodes: Collection[str], target: Target,
    space: Space | Refusal | None = None, traffic: Traffic | None = None,
) -> Cost:  # fmt: skip
    """One generated kernel of `nodes`; outputs come from the pool, so they fault no pages."""
    t = traffic or kernel_traffic(g, nodes)
    once = instructions(g, nodes, target) / target.flops
    compute = once + repeated_instructions(g, nodes, target) / target.flops
    memory = _memory_us(g, t, target)
    spill = spill_us(space, target) if isinstance(space, Space) else 0.0
    again = max(memory, compute) - max(memory, once)
    share = _share(g, nodes, target)
    overhead = target.launch_us + sum(_inside_us(g, u, target) for u in busy_users(g, nodes))
    return _placed(Cost(overhead, memory / share, compute / share, 0.0, spill, again / share), target)


def eager_cost(g: Graph, user: UserOp, target: Target) -> Cost:
    """One user operator in eager; a view or a question about sizes costs nothing, control flow its dearer branch or one
    round."""
    if is_free(g, user) or is_write_back(g, user):
        return Cost()
    if control(g, user) is not None:
        return Cost(target.framework_us + _inside_us(g, user, target))
    t = user_traffic(g, user)
    nodes = [n.id for n in g.members[user.name]]
    passes = _passes(g, user)
    compute = instructions(g, nodes, target) / target.flops
    fresh = sum(b for b in t.writes.values() if b >= FRESH_BYTES)
    fault = fresh / 1e6 * target.page_fault_us
    share = _share(g, nodes, target)
    memory = _memory_us(g, t, target) * passes
    return _placed(Cost(target.framework_us * passes, memory / share, compute / share, fault), target)


def _passes(g: Graph, user: UserOp) -> int:
    name = short_name(user)
    if name == "batch_norm" and any(is_reduction(n) for n in g.members[user.name]):
        return 2  # in training: statistics, then the normalisation
    return _EAGER_KERNELS.get(name, 1)


def framework_cost(g: Graph, user: UserOp, target: Target) -> Cost:
    """One user operator as a step of a plan: as in eager, but what eager writes through a view makes a whole tensor."""
    if not is_write_back(g, user):
        return eager_cost(g, user, target)
    (out,) = user.outputs
    moved = 2 * g.values[out].nbytes / bandwidth(level(g, out, target), target)
    return _placed(Cost(target.framework_us, moved), target)


def _inside_us(g: Graph, user: UserOp, target: Target) -> float:
    """What control flow runs inside, whatever it is merged with: its dearer branch or one round; 0 for others."""
    c = control(g, user)
    if c is None:
        return 0.0
    inside = (g.subgraphs[name] for name in c.subgraphs)
    return c.weigh(*(sum(eager_cost(s, u, target).total for u in s.user_ops) for s in inside))


def alone(g: Graph, nodes: frozenset[str], target: Target) -> Cost:
    """What a group costs unmerged: one user operator (and views) through the framework, or its own kernel."""
    users = busy_users(g, nodes)
    if not users:
        return Cost()
    if len(users) == 1:
        return framework_cost(g, users[0], target)
    return kernel_cost(g, own_nodes(g, nodes), target)


def busy_users(g: Graph, nodes: Collection[str]) -> tuple[UserOp, ...]:
    """The user operators of a group that are not views."""
    names = dict.fromkeys(n.user for n in in_order(g, nodes))
    return tuple(g.user[u] for u in names if not is_view(g, g.user[u]))


def instructions(g: Graph, nodes: Collection[str], target: Target) -> float:
    """Vector instructions of the primitives, each evaluated once per element."""
    return sum(_instructions(g, g.node[i], nodes, target) for i in nodes) / target.lanes


def _instructions(g: Graph, n: Node, nodes: Collection[str], target: Target) -> float:
    spec = spec_of(n.op)
    if spec is None:
        return _contraction(g, n)
    if n.op == "permute" and target.kind == "cpu":
        return _turning(g, n, nodes, target)
    over = n.inputs[0] if spec.cls == "reduce" else n.out
    v = g.values[over]
    return spec.flops * v.numel * max(v.type.itemsize / 4, 1)


def _turning(g: Graph, n: Node, nodes: Collection[str], target: Target) -> float:
    """What it takes to read memory along an axis that is not its innermost one."""
    axes = [a for a in ints(n.attr("perm")) if hint(g.values[n.inputs[0]].shape[a]) > 1]
    v = n.inputs[0]
    while (p := g.producer.get(v)) is not None and p.id in nodes:
        if not is_view(g, g.user[p.user]):
            return 0.0
        v = p.inputs[0]
    apart = hint(g.values[n.inputs[0]].strides[axes[-1]]) if axes else 1
    if apart <= 1:
        return 0.0
    return g.values[n.out].numel * (2 * apart if apart <= SHUFFLED else GATHER * target.lanes)


def _contraction(g: Graph, n: Node) -> float:
    """Multiply-adds of a matrix product or convolution: result elements times the length of the inner sum."""
    user = g.user[n.user]
    if user.kind != "contract" or not n.outputs:
        return 0.0
    shapes = [[hint(d) for d in g.values[v].shape] for v in n.inputs if len(g.values[v].shape) >= 2]
    if len(shapes) < 2:
        return 0.0
    conv = "conv" in user.target
    inner = prod(shapes[1][1:]) if conv else shapes[0][-1]
    return float(g.values[n.out].numel * inner)


def repeated_instructions(g: Graph, nodes: Collection[str], target: Target) -> float:
    """Vector instructions beyond the first evaluation of each element, in one kernel of `nodes`."""
    times = repeats(g, nodes)
    again = ((n, times.get(n.out, 1.0) - 1) for i in nodes if (n := g.node[i]).outputs)
    return sum(_instructions(g, n, nodes, target) * more for n, more in again) / target.lanes


def spill_instructions(space: Space, target: Target) -> float:
    """Stores and loads of the vectors that find no register, over the whole iteration space."""
    excess = space.live_vectors - target.vector_registers
    if excess <= 0 or target.kind != "cpu":
        return 0.0
    return 2.0 * excess * prod(space.dims) / target.lanes


def spill_us(space: Space, target: Target) -> float:
    """Time of those stores and loads, in µs."""
    return spill_instructions(space, target) / target.flops


def spill_bytes(space: Space, target: Target) -> int:
    """Bytes that spilled vectors move to and from the stack."""
    return int(spill_instructions(space, target) * target.vector_bits // 8)


def short_name(user: UserOp) -> str:
    """`softmax` of `aten.softmax.int`."""
    parts = user.target.split(".")
    return parts[1] if len(parts) > 1 else user.target


def bandwidth(name: str, target: Target) -> float:
    """Bytes per µs of the memory level `name`."""
    return {"l2": target.l2_bandwidth, "l3": target.l3_bandwidth, "dram": target.dram_bandwidth}[name]


def compile_us(kernels: int, primitives: int, target: Target, calls: int = 1) -> float:
    """Time to generate and compile kernels of so many primitives in all, as each of `calls` calls bears it in
    every process that finds them cached.
    """
    whole = target.compile_us * kernels + target.compile_primitive_us * primitives
    return whole / (max(calls, 1) * CACHED_RUNS)


def is_composite(g: Graph, user: UserOp) -> bool:
    """Whether the operator is several computing primitives."""
    return sum(1 for n in g.members[user.name] if (s := OPS.get(n.op)) is not None and s.flops) > 1


def _memory_us(g: Graph, t: Traffic, target: Target) -> float:
    """Every value at the bandwidth of its level; strided reads at a share of it."""
    slow = target.strided_fraction or 1.0
    reads = sum(
        size / (bandwidth(level(g, v, target), target) * (slow if v in t.strided else 1.0))
        for v, size in t.reads.items()
    )
    return reads + sum(size / bandwidth(level(g, v, target), target) for v, size in t.writes.items())


def blocks(g: Graph, nodes: Collection[str]) -> int:
    """Blocks of a GPU launch: one a row where rows are reduced, else one for `GPU_BLOCK_POINTS` points."""
    rows = [g.values[n.out].numel for i in nodes if is_reduction(n := g.node[i])]
    if rows:
        return max(rows)
    points = max((g.values[v].numel for i in nodes for v in g.node[i].outputs), default=0)
    return max(ceil(points / GPU_BLOCK_POINTS), 1)


def is_reduction(n: Node) -> bool:
    """Whether a node is a reducing primitive."""
    spec = spec_of(n.op)
    return spec is not None and spec.cls == "reduce"


def _share(g: Graph, nodes: Collection[str], target: Target) -> float:
    """The part of a GPU that a launch fills."""
    if target.kind != "gpu" or not target.sms:
        return 1.0
    return min(1.0, blocks(g, nodes) / target.sms)


def _placed(c: Cost, target: Target) -> Cost:
    """On a CPU a small launch stays serial: one thread's share of the machine, no parallel region."""
    if target.kind == "gpu" or target.threads <= 1:
        return c
    n = target.threads
    if (max(c.memory, c.compute) + c.spill) * (n - 1) <= target.fork_us:
        return Cost(c.overhead, c.memory * n, c.compute * n, c.fault, c.spill * n, c.recompute * n)
    return replace(c, overhead=c.overhead + target.fork_us)
