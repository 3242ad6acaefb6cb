"""The difference of two plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusebound.gates.rules import Rules

if TYPE_CHECKING:
    from fusebound.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """What two plans of one graph do differently. Groups are tuples of user operators."""

    only_left: tuple[tuple[str, ...], ...]
    only_right: tuple[tuple[str, ...], ...]
    cuts_left: tuple[str, ...]
    cuts_right: tuple[str, ...]
    settings: tuple[str, ...]
    predicted_us: tuple[float, float]

    def __bool__(self) -> bool:
        return bool(self.only_left or self.only_right or self.cuts_left or self.cuts_right or self.settings)

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "the plans are the same"

    def lines(self) -> list[str]:
        """One difference a line: `-` what only the left plan has, `+` what only the right one has."""
        out = [f"! {s}" for s in self.settings]
        out += [f"- group {' + '.join(g)}" for g in self.only_left]
        out += [f"+ group {' + '.join(g)}" for g in self.only_right]
        out += [f"- cut {c}" for c in self.cuts_left]
        out += [f"+ cut {c}" for c in self.cuts_right]
        left, right = self.predicted_us
        if left != right:
            out.append(f"! predicted {left:g} µs → {right:g} µs")
        return out


def diff(left: Plan, right: Plan) -> PlanDiff:
    """Compare groups as sets of operators and cuts by producer, consumer, value and code."""
    a, b = _groups(left), _groups(right)
    ca, cb = _cuts(left), _cuts(right)
    names = ("graph_key", "policy", "numerics", "target", "tau", "expected_calls", "rules")
    settings = tuple(
        f"{n}: {_shown(getattr(left, n))} → {_shown(getattr(right, n))}"
        for n in names
        if getattr(left, n) != getattr(right, n)
    )
    return PlanDiff(
        tuple(g for g in a if g not in b), tuple(g for g in b if g not in a),
        tuple(c for c in ca if c not in cb), tuple(c for c in cb if c not in ca),
        settings, (left.predicted_us, right.predicted_us),
    )  # fmt: skip


def _shown(setting: object) -> str:
    return str(setting.to_json()) if isinstance(setting, Rules) else str(setting)


def _groups(plan: Plan) -> dict[tuple[str, ...], None]:
    """Every group that does something: one of views alone has no launch to save or add."""
    return {
        tuple(prefix + u for u in g.users): None
        for prefix, p in plan.everywhere()
        for g in p.groups
        if g.is_kernel or g.launches_before
    }


def _cuts(plan: Plan) -> dict[str, None]:
    return {
        f"{prefix}{c.producer} → {prefix}{c.consumer} on {c.value}: {c.code}": None
        for prefix, p in plan.everywhere()
        for c in p.cuts
    }
