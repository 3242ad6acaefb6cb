"""The decision: all four gates, always, and what the policy says."""

from __future__ import annotations

from dataclasses import dataclass

from fusebound.gates import dependence, gain, policy, precision, resources
from fusebound.gates.base import OK, Candidate, Facts, Verdict


@dataclass(frozen=True, slots=True)
class Judgement:
    """Four verdicts on one candidate, and the policy's refusal if there is one. True when all of them allow
    it.
    """

    dependence: Verdict
    precision: Verdict
    resources: Verdict
    gain: Verdict
    override: Verdict | None = None

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """In the order in which the first failure vetoes."""
        four = (self.dependence, self.precision, self.resources, self.gain)
        return four if self.override is None else (self.override, *four)

    def __bool__(self) -> bool:
        return all(self.verdicts)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of everything that is not a plain pass, in gate order."""
        return tuple(dict.fromkeys(v.code for v in self.verdicts if v.code != OK))

    @property
    def first(self) -> Verdict | None:
        """The verdict that vetoes, or None."""
        return next((v for v in self.verdicts if not v), None)


def judge(candidate: Candidate, facts: Facts) -> Judgement:
    """Put a candidate through all four gates."""
    return Judgement(
        dependence.check(candidate, facts),
        precision.check(candidate, facts),
        resources.check(candidate, facts),
        gain.check(candidate, facts),
        policy.check(candidate, facts),
    )
