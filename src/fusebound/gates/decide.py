"""The decision: all four gates, always, and what the policy and the user's rules say."""

from __future__ import annotations

from dataclasses import dataclass

from fusebound.gates import dependence, gain, override, policy, precision, resources
from fusebound.gates.base import OK, Candidate, Facts, Verdict
from fusebound.gates.override import REQUIRES


@dataclass(frozen=True, slots=True)
class Judgement:
    """Four verdicts on one candidate, and what overrides them, if anything: a policy or a rule of the user's.

    True when all of them allow the merge, or when a rule demands it and the order and the numbers are right.
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

    @property
    def _binding(self) -> tuple[Verdict, ...]:
        if self.override is not None and self.override.code == REQUIRES:
            return (self.dependence, self.precision)
        return self.verdicts

    def __bool__(self) -> bool:
        return all(self._binding)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of everything that is not a plain pass, in gate order."""
        return tuple(dict.fromkeys(v.code for v in self.verdicts if v.code != OK))

    @property
    def first(self) -> Verdict | None:
        """The verdict that vetoes, or None."""
        return next((v for v in self._binding if not v), None)


def judge(candidate: Candidate, facts: Facts) -> Judgement:
    """Put a candidate through all four gates."""
    ruled = override.check(candidate, facts.rules)
    return Judgement(
        dependence.check(candidate, facts),
        precision.check(candidate, facts),
        resources.check(candidate, facts),
        gain.check(candidate, facts),
        ruled if ruled is not None else policy.check(candidate, facts),
    )
