"""Precision (F2xx): vanishing roundings, the simulated error, the user's casts, reordered reductions."""

from __future__ import annotations

from collections.abc import Iterator

from fusebound.analysis.numerics import (
    ErrorFacts,
    jump_after,
    reduces,
    reductions,
    rounding_points,
    roundings_before_jumps,
    user_casts,
)
from fusebound.analysis.tau import Difference, Tau
from fusebound.gates.base import Candidate, Evidence, Facts, Verdict, first, passed
from fusebound.ir.graph import hint
from fusebound.words import count

GATE = "precision"


def check(c: Candidate, facts: Facts) -> Verdict:
    """Under "eager" reductions stay with eager; otherwise jumps first, then the simulated error."""
    if facts.numerics == "eager":
        return _eager(c)
    return first(_checks(c, facts))


def _checks(c: Candidate, facts: Facts) -> Iterator[Verdict | None]:
    yield _simulated(c, facts)
    yield _jump(c, facts)
    yield _clean(c, facts)


def _eager(c: Candidate) -> Verdict:
    reducing = [s for s in (c.a, c.b) if reduces(c.graph, s)]
    if reducing:
        nodes = tuple(n.id for n in reductions(c.graph, c.nodes)) or tuple(reducing[0])[:1]
        text = (
            f"{c.label(nodes[0])} reduces; numerics='eager' leaves reductions to the framework's own kernels"
        )
        return Verdict(GATE, "fail", "F207", text, nodes, (), "numerics='accurate'")
    return passed(GATE, "every rounding of eager's is kept", _casts(c))


def _jump(c: Candidate, facts: Facts) -> Verdict | None:
    """Roundings before a discontinuous operator: legal because, and as long as, the kernel repeats them."""
    kept = roundings_before_jumps(c.graph, c.nodes)
    if not kept:
        return None
    v = kept[-1]
    n, path = c.graph.producer[v], jump_after(c.graph, v, c.nodes)
    dtype = c.graph.values[v].dtype
    text = (
        f"{c.label(path[-1].id)} ({path[-1].op}) jumps, so the kernel rounds the result of {c.label(n.id)} to "
        f"{dtype} as eager does"
    )
    evidence = (
        Evidence("roundings kept before a jump", len(kept)),
        Evidence("operators from the rounding to the jump", len(path)),
        *_background(c, facts),
    )
    flip = f"compute {n.user} in float32: then there is nothing to keep"
    return Verdict(GATE, "conditional", "F201", text, (n.id, *(p.id for p in path)), evidence, flip)


def _simulated(c: Candidate, facts: Facts) -> Verdict | None:
    e = facts.simulated.get(c.nodes)
    if e is None:
        return _unproven(c, facts)
    if e.class_changes:
        elements = count(e.class_changes, "element")
        text = f"{e.output} changes class (NaN, Inf, finite) in {elements} on {e.data} data"
        bound = Evidence.bound("class changes", e.class_changes, 0, "elements", source="simulated")
        evidence = (bound, *_finiteness(e))
        return Verdict(GATE, "fail", "F204", text, (), evidence, "fuse fewer of these operators")
    tau = facts.tau_of(c)
    evidence = _errors(e, tau)
    over = [x for x in evidence if x.margin is not None and x.margin < 0]
    if not over:
        return None
    worst = over[0]
    data = e.data if tau is None else "normal"
    text = (
        f"the simulated {worst.quantity} of {e.output} on {data} data is {worst.value:.3g}, "
        f"over {worst.limit:.3g} {worst.unit}".rstrip()
    )
    flip = (
        tau.loosened(e.difference)
        if tau is not None
        else f"tau={e.difference.absolute:.3g} instead of the fp64 rule"
    )
    return Verdict(GATE, "fail", "F202", text, (), evidence, flip)


def _unproven(c: Candidate, facts: Facts) -> Verdict | None:
    """Under a τ what has not been simulated is not known to be right."""
    tau = facts.tau_of(c)
    if tau is None:
        return None
    text = f"no simulation of this group is known, so |fused − eager| ≤ τ = {tau} is unproven"
    return Verdict(GATE, "unknown", "F202", text, (), _background(c, facts), "simulate the group")


def _errors(e: ErrorFacts, tau: Tau | None) -> tuple[Evidence, ...]:
    if tau is not None:
        return tuple(_differences(e.difference, tau))
    return (
        Evidence.bound("rms error", e.fused_rms, e.rms_limit, "", source="simulated"),
        Evidence.bound("max error beyond 4 ULP", e.excess, e.max_limit, "", source="simulated"),
        Evidence("max error", e.fused_max, source="simulated"),
        Evidence("eager's rms error", e.eager_rms, source="simulated"),
        Evidence("eager's max error", e.eager_max, source="simulated"),
    )


def _differences(d: Difference, tau: Tau) -> Iterator[Evidence]:
    """The difference beside τ; where τ has several kinds, of which an element needs one, beside all it allows."""
    units = {"absolute": "", "relative": "of |eager|", "ulp": "ULP"}
    if len(tau.given) > 1:
        yield Evidence.bound("|fused − eager| as a share of τ", d.excess, 1.0, "", source="simulated")
    for kind, limit in tau.given.items():
        value, unit = getattr(d, kind), units[kind]
        if len(tau.given) > 1:
            yield Evidence("|fused − eager|", value, unit=unit, source="simulated")
        else:
            yield Evidence.bound("|fused − eager|", value, limit, unit, source="simulated")


def _clean(c: Candidate, facts: Facts) -> Verdict:
    roundings = rounding_points(c.graph, c.nodes)
    fewer = f"{count(len(roundings), 'rounding')} fewer, none before a jump"
    text = fewer if roundings else "no rounding vanishes"
    return passed(GATE, text, _background(c, facts), roundings)


def _background(c: Candidate, facts: Facts) -> tuple[Evidence, ...]:
    """What is known of the numbers beside the decisive fact."""
    e = facts.simulated.get(c.nodes)
    return (
        Evidence("roundings that vanish", len(rounding_points(c.graph, c.nodes))),
        *_casts(c),
        *_orders(c),
        *((*_errors(e, facts.tau_of(c)), *_finiteness(e)) if e is not None else ()),
    )


def _finiteness(e: ErrorFacts) -> Iterator[Evidence]:
    """Overflow that fusing introduces, and overflow that it removes."""
    for quantity, elements in (("finiteness lost", e.finite_lost), ("finiteness gained", e.finite_gained)):
        if elements:
            yield Evidence(quantity, elements, unit="elements", source="simulated")


def _casts(c: Candidate) -> tuple[Evidence, ...]:
    casts = user_casts(c.graph, c.nodes)
    return (Evidence("casts that the user wrote, kept (F203)", len(casts)),) if casts else ()


def _orders(c: Candidate) -> tuple[Evidence, ...]:
    """Reductions whose order changes, with the length of the longest sum."""
    found = reductions(c.graph, c.nodes)
    if not found:
        return ()
    longest = max(_terms(c, n.id) for n in found)
    return (Evidence("terms of the longest reordered reduction (F206)", longest),)


def _terms(c: Candidate, node: str) -> int:
    n = c.graph.node[node]
    whole = 1
    for d in c.graph.values[n.inputs[0]].shape:
        whole *= hint(d)
    return whole // max(c.graph.values[n.out].numel, 1)
