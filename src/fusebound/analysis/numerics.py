"""Where eager rounds and a fused kernel would not, and which operators turn such a difference into a jump."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from fusebound.analysis.group import in_order
from fusebound.analysis.tau import Difference, Tau
from fusebound.ir.dtypes import DTYPES
from fusebound.ir.graph import Graph, Node
from fusebound.ir.ops import spec_of

HALF = frozenset(("float16", "bfloat16"))
"""Types whose storage is narrower than the arithmetic (float32) that computes them."""

RMS_SLACK, RMS_ULP = 1.25, 2.0
MAX_SLACK, MAX_ULP = 2.0, 4.0
"""What "no worse than eager" means (docs/gates.md, Precision)."""

ROUNDING = 2.0
"""ULP by which two results may lie apart that each lie within one ULP of the true value."""


def rms_limit(eager: float, ulp: float) -> float:
    """The largest rms error of a fused result that is no worse than eager's, by eager's rms error and one ULP at the
    output's rms, in one unit."""
    return max(RMS_SLACK * eager, RMS_ULP * ulp)


def max_limit(eager: float) -> float:
    """The largest error of a fused element beyond 4 ULP of itself (`beyond`), by eager's largest anywhere."""
    return MAX_SLACK * eager


def beyond(error: Any, unit: Any) -> Any:
    """The errors of the elements that are beyond 4 ULP of themselves, of arrays or tensors; `unit` is one ULP at each
    element."""
    return error[error > MAX_ULP * unit]


@dataclass(frozen=True, slots=True)
class ErrorFacts:
    """Errors of one output of a candidate against float64, eager and fused, on the worst data set.

    `excess` is the largest fused error among elements beyond 4 ULP of themselves. `difference` is what lies between
    eager and fused. `rms_ulp` is one ULP at the output's rms. `class_changes` counts elements whose class (finite,
    ±Inf, NaN) is wrong in the fused result and right in eager's, `finite_lost` those of them that are finite in eager.
    `finite_gained` counts the other direction, over all data sets: finite in the fused result, as in float64, and not
    in eager's, whose intermediate overflows. `data` names the data set.
    """

    output: str
    data: str
    eager_rms: float
    fused_rms: float
    eager_max: float
    fused_max: float
    excess: float
    difference: Difference
    rms_ulp: float
    class_changes: int = 0
    finite_lost: int = 0
    finite_gained: int = 0

    @property
    def rms_limit(self) -> float:
        return rms_limit(self.eager_rms, self.rms_ulp)

    @property
    def max_limit(self) -> float:
        return max_limit(self.eager_max)


def rounding_points(g: Graph, nodes: Collection[str]) -> tuple[str, ...]:
    """Values that eager rounds to a half type and a kernel of `nodes`, keeping intermediates wide, does not.

    A value counts when the kernel computes it and reads it again itself, and need not keep its rounding.
    """
    inside = frozenset(nodes)
    kept = kept_roundings(g, inside)
    return tuple(v for v in _roundings_inside(g, inside) if v not in kept)


def roundings_before_jumps(g: Graph, nodes: Collection[str]) -> tuple[str, ...]:
    """Values whose rounding a kernel of `nodes` must repeat because a discontinuous operator comes after it."""
    inside = frozenset(nodes)
    reach = _reaching_jump(g, inside)
    return tuple(v for v in _roundings_inside(g, inside) if v in reach)


def kept_roundings(g: Graph, inside: frozenset[str], numerics: str = "accurate") -> frozenset[str]:
    """Values of a half type that a kernel rounds even in registers.

    Always: conversions from another type, the user's and those at the end of a composite, and values from which a
    discontinuous operator is reached inside the group (a comparison of unrounded values would take another branch
    than eager). With `numerics="eager"`: all. Constants are rounded unless the kernel computes with wide values: beside
    one, a rounded constant would no longer cancel.
    """
    narrow = frozenset(v for i in inside for v in g.node[i].outputs if g.values[v].dtype in HALF)
    if numerics == "eager":
        return narrow
    reach = _reaching_jump(g, inside)
    kept = frozenset(v for v in narrow if v in reach or _converts(g, g.producer[v]))
    constants = frozenset(v for v in narrow - kept if g.producer[v].op == "const")
    return kept if constants and _computes_wide(g, inside, kept) else kept | constants


def _computes_wide(g: Graph, inside: frozenset[str], kept: frozenset[str]) -> bool:
    """Whether an operator that rounds reads a value that eager has rounded and the kernel has not."""
    wide: set[str] = set()
    for n in in_order(g, inside):
        if _converts(g, n) and n.out in kept:
            continue
        reads_wide = any(v in wide for v in n.inputs)
        if reads_wide and _inexact(g, n):
            return True
        if reads_wide or _rounds(g, n):
            wide.update(v for v in n.outputs if v not in kept)
    return False


def _reaching_jump(g: Graph, inside: frozenset[str]) -> frozenset[str]:
    """Values read, directly or through others of the group, by a discontinuous operator of it."""
    reach: set[str] = set()
    for n in reversed(in_order(g, inside)):
        if jumps(g, n) or any(v in reach for v in n.outputs):
            reach.update(n.inputs)
    return frozenset(reach)


def _roundings_inside(g: Graph, inside: frozenset[str]) -> list[str]:
    """Values that eager rounds and that the group both computes and reads; casts of the user's aside."""
    return [
        n.out
        for n in in_order(g, inside)
        if _rounds(g, n) and not is_user_cast(n) and any(c.id in inside for c in g.consumers[n.out])
    ]


def _rounds(g: Graph, n: Node) -> bool:
    return _inexact(g, n) and g.values[n.out].dtype in HALF


def _inexact(g: Graph, n: Node) -> bool:
    """Whether a primitive does more than move or copy elements."""
    spec = spec_of(n.op)
    return spec is not None and not spec.exact and (n.op != "cast" or _converts(g, n))


def _converts(g: Graph, n: Node) -> bool:
    """Whether the node is a conversion to another type; one to the same type copies."""
    return n.op == "cast" and g.values[n.inputs[0]].dtype != g.values[n.out].dtype


def is_user_cast(n: Node) -> bool:
    """Whether the node is a conversion that the user wrote, which every semantics keeps."""
    return n.op == "cast" and n.attr("user") is True


def rounded_by_user(g: Graph, n: Node) -> bool:
    """Whether the user converts to a type that does not hold the operand's: all that the float64 reference rounds."""
    if not is_user_cast(n):
        return False
    source, target = DTYPES[g.values[n.inputs[0]].dtype], DTYPES[g.values[n.out].dtype]
    return not (source.is_float and (source == target or source.itemsize < target.itemsize))


def jump_after(g: Graph, value: str, nodes: Collection[str]) -> tuple[Node, ...]:
    """The path of nodes inside from `value` to the nearest discontinuous one; empty where there is none."""
    inside = frozenset(nodes)
    queue: list[tuple[str, tuple[Node, ...]]] = [(value, ())]
    seen = {value}
    while queue:
        v, path = queue.pop(0)
        for n in g.consumers[v]:
            if n.id not in inside:
                continue
            if jumps(g, n):
                return (*path, n)
            if n.out in seen:
                continue
            seen.add(n.out)
            queue.append((n.out, (*path, n)))
    return ()


def jumps(g: Graph, n: Node) -> bool:
    """Whether a small change of an operand can change the node's result by a step.

    Conversions to integers do, and those of the user's to a narrower floating type: they round what eager has rounded.
    """
    spec = spec_of(n.op)
    if spec is None:
        return False
    if n.op == "cast":
        source, target = DTYPES[g.values[n.inputs[0]].dtype], DTYPES[g.values[n.out].dtype]
        return source.is_float and (not target.is_float or rounded_by_user(g, n))
    return spec.discontinuous


def user_casts(g: Graph, nodes: Collection[str]) -> tuple[Node, ...]:
    """The conversions inside that the user wrote."""
    return tuple(n for n in in_order(g, nodes) if is_user_cast(n))


def reductions(g: Graph, nodes: Collection[str]) -> tuple[Node, ...]:
    """The floating reductions inside whose order of summation a kernel chooses."""
    return tuple(
        n
        for n in in_order(g, nodes)
        if (s := spec_of(n.op)) is not None and s.accumulates and g.values[n.inputs[0]].type.is_float
    )


def needs_simulation(g: Graph, nodes: Collection[str], tau: Tau | None, whole: bool) -> bool:
    """Whether a candidate's error must be simulated.

    Under a τ always; else where roundings vanish and, once a group is `whole`, where a sum is reordered.
    """
    return tau is not None or bool(rounding_points(g, nodes)) or (whole and bool(reductions(g, nodes)))


def reduces(g: Graph, nodes: Collection[str]) -> bool:
    """Whether any primitive inside reduces an axis."""
    return any((s := spec_of(g.node[i].op)) is not None and s.cls == "reduce" for i in nodes)
