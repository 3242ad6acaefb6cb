"""Plans and explanations as text, for review in diffs."""

from __future__ import annotations

from fusebound.gates.base import Verdict
from fusebound.plan.explain import Why
from fusebound.plan.plan import Decision, Plan


def plan_text(p: Plan) -> str:
    """Header, groups, cuts and decisions, one a line."""
    lines = [
        f"{p.graph.name}: {p.policy}, {p.numerics}, {p.target}, {p.expected_calls} calls",
        f"predicted {p.predicted_us:.1f} µs, bound {p.lower_bound_us:.1f} µs, eager {p.eager_us:.1f} µs, "
        f"peak {p.peak_bytes} B",
        "",
    ]
    for g in p.groups:
        lines.append(
            f"{g.id} {g.kind}: {' '.join(g.users)}\n"
            f"    {g.bytes_before} B → {g.bytes_after} B, {g.launches_before} launches, "
            f"{g.predicted_us:.2f} µs"
        )
    lines += ["", *(f"cut {c.producer} → {c.consumer}: {c.code} {c.message}" for c in p.cuts)]
    lines += ["", *map(_decision, p.decisions)]
    return "\n".join(lines) + "\n"


def _decision(d: Decision) -> str:
    answer = "fuse" if d.accepted else "keep apart"
    delta = next(e for e in d.judgement.gain.evidence if e.quantity == "ΔT")
    codes = " ".join(d.judgement.codes)
    return f"{d.step} {answer} {d.a} + {d.b}: ΔT {delta.value:.2f} µs {codes}".rstrip()


def why_text(w: Why) -> str:
    """The answer, then each gate with its evidence and what would flip it."""
    place = {None: "", True: " (one kernel in the plan)", False: " (apart in the plan)"}[w.fused]
    lines = [f"{w.a.label} + {w.b.label}: {'yes' if w else 'no'}{place}"]
    lines += [f"judged: {' '.join(w.group)}", f"at stake: {w.saved_bytes} B", ""]
    for v in w.judgement.verdicts:
        lines += _verdict(v)
    return "\n".join(lines) + "\n"


def _verdict(v: Verdict) -> list[str]:
    lines = [f"{v.gate}: {v.state} {v.code}: {v.message}"]
    for e in v.evidence:
        margin = f" (margin {e.margin:.4g})" if e.margin is not None else ""
        lines.append(f"    {e}{margin} [{e.source}]")
    if v.counterfactual:
        lines.append(f"    flips with: {v.counterfactual}")
    return lines
