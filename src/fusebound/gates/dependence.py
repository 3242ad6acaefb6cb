"""Dependence (F1xx order and hazards, F5xx iteration domains, F6xx boundaries)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from fusebound.analysis.draws import counted
from fusebound.analysis.group import boundary
from fusebound.analysis.hazards import MAX_POINTS, Hazard, Undecided, hazard
from fusebound.analysis.recompute import Ways, ways
from fusebound.analysis.relation import relation
from fusebound.analysis.sizes import at_run_time, decides, operands, symbols, takes_number
from fusebound.analysis.space import MAX_SERIAL_ROW, Refusal
from fusebound.gates.base import Candidate, Evidence, Facts, Verdict, first, passed
from fusebound.gates.cycle import outside_path
from fusebound.ir.dtypes import KERNEL_DTYPES
from fusebound.ir.graph import Graph, UserOp, refs
from fusebound.ir.ops import OPS, spec_of

GATE = "dependence"

_KIND_CODE = {
    "opaque": "F601",
    "scan": "F608",
    "contract": "F607",
    "random": "F606",
    "scatter": "F609",
    "gather": "F609",
}
_KIND_WHY = {
    "F601": "is not an operator that fusebound understands",
    "F603": "branches or loops inside",
    "F604": "computes in a type that kernels do not have",
    "F605": "runs on a device without a back end",
    "F606": "draws random numbers in the framework's order",
    "F607": "is a contraction that the library does better",
    "F608": "scans along an ordered axis",
    "F609": "gathers or scatters by data",
    "F610": "has no kernel yet",
}
_KIND_FLIP = {
    "F601": "register it with fb.register_op",
    "F602": "give it a static size (a mask instead of a selection)",
    "F603": "write the branch as where(), a loop of known length as a Python loop",
    "F606": "draw from the default generator, outside branches, with numerics=accurate",
}


def boundary_code(g: Graph, user: UserOp, numerics: str = "accurate") -> str:
    """Why a user operator runs through the framework (a code), or "" where kernels can compute it.

    With `numerics="eager"` random numbers are the framework's.
    """
    if user.why:
        return user.why
    if numerics == "eager" and counted(g, user):
        return "F606"
    if all(spec_of(n.op) is not None for n in g.members[user.name]):
        return ""
    return _KIND_CODE.get(user.kind, "F601")


def boundary_text(g: Graph, user: UserOp, code: str) -> str:
    """The sentence that names a boundary and why it is one."""
    if code == "F604" and (strange := _strange_types(g, user)):
        return f"{user.label} computes in {', '.join(strange)}, for which there are no kernels"
    if code == "F602":
        return f"{user.label} {at_run_time(g, user)}"
    return f"{user.label} {_KIND_WHY.get(code, 'runs through the framework')}"


def _strange_types(g: Graph, user: UserOp) -> tuple[str, ...]:
    """The element types of an operator that kernels do not have."""
    values = (g.values[v] for n in g.members[user.name] for v in (*n.inputs, *n.outputs))
    return tuple(dict.fromkeys(v.dtype for v in values if v.dtype not in KERNEL_DTYPES))


def check(c: Candidate, facts: Facts) -> Verdict:
    """Boundaries, then cycles, then hazards, then whether data is shared, then the iteration domain, which says more
    than a search for hazards that ended without an answer."""
    return first(_checks(c, facts))


def _checks(c: Candidate, facts: Facts) -> Iterator[Verdict | None]:
    yield _boundary(c, facts.numerics)
    yield _cycle(c, facts.numerics)
    found = hazard(c.graph, c.nodes)
    yield _hazard(found)
    yield _unrelated(c)
    yield _domain(c)
    yield _grid(c, facts)
    yield _undecided(found)
    yield _fine(c, facts)


def _boundary(c: Candidate, numerics: str) -> Verdict | None:
    for name in c.users():
        user = c.graph.user[name]
        code = boundary_code(c.graph, user, numerics)
        if code:
            text = boundary_text(c.graph, user, code)
            nodes = tuple(n.id for n in c.graph.members[name])
            evidence = (
                Evidence("class", user.kind, "in", "pointwise, reduce, move, gather"),
                *_equal_sizes(c),
            )
            return Verdict(GATE, "fail", code, text, nodes, evidence, _boundary_flip(c.graph, user, code))
    return None


def _equal_sizes(c: Candidate) -> tuple[Evidence, ...]:
    """Sizes of the run that both sides have: one symbol is one number, however it came there."""
    sides = [
        symbols(c.graph, {v for n in side for v in (*c.graph.node[n].inputs, *c.graph.node[n].outputs)})
        for side in (c.a, c.b)
    ]
    return tuple(Evidence("size of both", s, "known", "at run time") for s in sides[0] if s in sides[1])


def _boundary_flip(g: Graph, user: UserOp, code: str) -> str:
    """The smallest change that would make a boundary none: what capture found, else what helps its kind."""
    if code == "F602":
        makers = (decides(g, s) for s in symbols(g, operands(g, user)))
        for u in (user, *(m for m in makers if m is not None)):
            if unlock := next((a for n in g.members[u.name] if isinstance(a := n.attr("unlock"), str)), ""):
                return unlock
        if takes_number(g, user):
            return "keep the number a 0-d tensor, without item()"
    indices = (v for a in user.args[1:2] for v in refs(a))
    if code == "F609" and "index_put" in user.target and any(g.values[v].dtype == "bool" for v in indices):
        return "torch.where(mask, value, x), with a value for every element of the mask"
    return _KIND_FLIP.get(code, "none: it stays a boundary")


def _cycle(c: Candidate, numerics: str) -> Verdict | None:
    path = [] if c.acyclic else outside_path(c, numerics)
    if not path:
        return None
    outside = list(dict.fromkeys(c.graph.node[n].user for n in path if n not in c.nodes))
    text = f"one kernel would have to run before and after what lies between: {_route(c, path)}"
    evidence = (Evidence.bound("operators outside on the path", len(outside), 0, ""),)
    fixed = next(
        (c.graph.user[u] for u in outside if boundary_code(c.graph, c.graph.user[u], numerics)), None
    )
    flip = f"fuse {', '.join(outside)} as well"
    if fixed is not None:
        flip = f"none while {fixed.label} runs through the framework"
    return Verdict(GATE, "fail", "F101", text, tuple(path), evidence, flip)


def _route(c: Candidate, path: list[str]) -> str:
    """A path in words: an arrow to what must come later, and what only lies in the same other kernel named as that."""
    words = c.label(path[0])
    for a, b in pairwise(path):
        one, two = c.graph.node[a].user, c.graph.node[b].user
        if one != two:
            together = a in c.owner.get(b, ()) and not _feeds(c.graph, one, two)
            words += f"{', in one kernel with ' if together else ' → '}{c.label(b)}"
    return words


def _feeds(g: Graph, one: str, two: str) -> bool:
    """Whether an operator reads a value of another."""
    return any(r.user == two for n in g.members[one] for v in n.outputs for r in g.consumers[v])


def _hazard(found: Hazard | Undecided | None) -> Verdict | None:
    if not isinstance(found, Hazard):
        return None
    evidence = (Evidence("points read", found.read, "=", found.write, "of " + found.storage),)
    return Verdict(GATE, "fail", "F102", found.message, found.nodes, evidence, found.counterfactual)


def _undecided(found: Hazard | Undecided | None) -> Verdict | None:
    if not isinstance(found, Undecided):
        return None
    evidence = (Evidence.bound(f"reads of {found.storage} looked at", found.points, MAX_POINTS, "", "<"),)
    flip = f"write the result to a new tensor instead of {found.storage}"
    return Verdict(GATE, "unknown", "F108", found.message, found.nodes, evidence, flip)


def _unrelated(c: Candidate) -> Verdict | None:
    if c.between or c.common or not c.b:
        return None
    a, b = (c.label(min(s, key=c.graph.position.__getitem__)) for s in (c.a, c.b))
    evidence = (Evidence("values shared", 0, ">", 0),)
    text = f"{a} and {b} neither feed one another nor read a common value"
    return Verdict(GATE, "fail", "F107", text, (), evidence, "a value that both read")


def _domain(c: Candidate) -> Verdict | None:
    if not isinstance(c.space, Refusal) or c.space.code == "F303":
        return None
    r = c.space
    evidence = tuple(Evidence(f"read of {v}", relation(c.graph, v, c.nodes)) for v in c.between[:4])
    where = c.label(r.nodes[0]) if r.nodes else ""
    text = r.message if where in r.message else f"{where}: {r.message}"
    return Verdict(GATE, "fail", r.code, text, r.nodes, evidence, r.flip or _domain_flip(r.code))


def _grid(c: Candidate, facts: Facts) -> Verdict | None:
    """The blocks of a GPU cannot wait for one another; the threads of a CPU do, between the phases of a kernel."""
    s = c.space
    if isinstance(s, Refusal) or facts.target.kind == "cpu" or s.outer > 1 or s.row <= MAX_SERIAL_ROW:
        return None
    n = next(n for n in c.graph.nodes if n.id in c.nodes and OPS[n.op].cls == "reduce")
    label = c.graph.user[n.user].label
    text = f"{label} reduces everything to one value, which needs the whole grid ({s.row:,} elements)"
    evidence = (Evidence.bound("elements of one row", s.row, MAX_SERIAL_ROW, ""),)
    return Verdict(GATE, "fail", "F504", text, (n.id,), evidence, _domain_flip("F504"))


def _domain_flip(code: str) -> str:
    return {
        "F501": "give both operators one shape",
        "F502": "keep the axes apart instead of reshaping across them",
        "F503": "reduce over the same axes",
        "F504": f"keep at least one axis, reduce in two steps, or reduce at most {MAX_SERIAL_ROW:,} elements",
        "F506": "fewer pieces",
        "F507": "a static shape with at least one element",
    }.get(code, "a schedule for this access pattern")


def _fine(c: Candidate, facts: Facts) -> Verdict:
    evidence = [Evidence(f"RAW on {v}", relation(c.graph, v, c.nodes)) for v in c.between[:6]]
    if not c.between:
        evidence.append(Evidence("values that both read", len(c.common), ">", 0))
    for v in c.between:
        if v in c.graph.escaping:
            evidence.append(Evidence(f"{v} escapes (F105)", c.graph.values[v].nbytes, unit="B"))
        outside = [n for n in c.graph.consumers[v] if n.id not in c.nodes]
        if outside:
            evidence += _three_ways(v, len(c.graph.consumers[v]), ways(c.graph, v, c.nodes, facts.target))
    kind = "a value flows from one to the other" if c.between else "both read the same value"
    aliased = _may_alias(c, tuple(evidence))
    return aliased if aliased is not None else passed(GATE, kind, tuple(evidence), c.between)


def _may_alias(c: Candidate, evidence: tuple[Evidence, ...]) -> Verdict | None:
    """A kernel that replaces an input's content and reads other inputs: legal while they do not overlap."""
    reads, writes = boundary(c.graph, c.nodes)
    written = [m.target for m in c.graph.mutations if m.source in writes]
    others = [v for v in reads if v in c.graph.input_ids and v not in written and v != c.graph.seed]
    if not written or not others:
        return None
    text = (
        f"legal as long as {', '.join(written)} shares no memory with {', '.join(others)}, "
        f"which is checked on every call"
    )
    found = (*evidence, Evidence("inputs that may overlap a written one", len(others), unit="tensors"))
    return Verdict(GATE, "conditional", "F104", text, (), found, "a copy of the written tensor")


def _three_ways(v: str, consumers: int, w: Ways) -> list[Evidence]:
    """A value with consumers outside: an extra output, recomputed, or a cut here."""
    return [
        Evidence(f"consumers of {v} (F106)", consumers),
        Evidence(f"sharing {v}", w.share_us, unit="µs"),
        Evidence(f"recomputing {v}", w.recompute_us, unit="µs"),
        Evidence(f"materialising {v}", w.materialise_us, unit="µs"),
    ]
