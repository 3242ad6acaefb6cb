"""What verification found: one check per output and set of values, and the checks of the run as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fusebound.verify.classes import ClassChange
from fusebound.words import count

VERDICTS = ("equal", "nearer fp64", "as eager", "within τ", "worse", "class changed")
"""From best to worst; the last two fail."""


@dataclass(frozen=True, slots=True)
class Figures:
    """How far one result lies from another: rms and maximum in the output's unit, the rms as a share of the fp64
    values' rms, the rms in ULP at that rms, and the maximum in ULP of its element (0 for integers)."""

    rms: float = 0.0
    max: float = 0.0
    relative: float = 0.0
    ulps: float = 0.0
    max_ulps: float = 0.0


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """One output (or mutated input) on one set of values, or with `group` one value that a group of the plan stores.

    `fused` and `eager` are errors against fp64, `apart` is fused against eager; they count elements that are finite
    in all three. `changes` are the other ones.
    """

    set: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    verdict: str
    detail: str
    fused: Figures
    eager: Figures
    apart: Figures
    changes: tuple[ClassChange, ...] = ()
    group: str = ""

    @property
    def ok(self) -> bool:
        return self.verdict not in VERDICTS[-2:]


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The outcome of `check.verify`. `deterministic` and `threads` say whether two runs, and runs with
    another thread count, gave the same bits (None: not decided, because eager itself differs). `raised`
    lists sets on which eager raises, and so does the program; `faults` are failures that belong to no
    output. `groups` are the values that the plan's kernels store, in its order, where the program has a plan:
    they explain, and fail nothing by themselves. `sets` are those that were judged, `skipped` those not begun for lack
    of time, and `unjudged` the others, each with the reason."""

    checks: tuple[OutputCheck, ...]
    sets: tuple[str, ...]
    skipped: tuple[str, ...]
    raised: tuple[str, ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...]
    deterministic: bool | None
    threads: bool | None
    poisoned: bool
    seconds: float
    groups: tuple[OutputCheck, ...] = ()
    unjudged: tuple[tuple[str, str], ...] = ()

    @property
    def ok(self) -> bool:
        return not self.faults and all(c.ok for c in self.checks)

    def __bool__(self) -> bool:
        return self.ok

    @property
    def failures(self) -> tuple[OutputCheck, ...]:
        """The checks that failed, in order."""
        return tuple(c for c in self.checks if not c.ok)

    @property
    def outputs(self) -> tuple[OutputCheck, ...]:
        """Per output the check with the worst verdict; among equals the first set's."""
        return _worst(self.checks)

    @property
    def stored(self) -> tuple[OutputCheck, ...]:
        """Per value that a kernel stores the check with the worst verdict."""
        return _worst(self.groups)

    @property
    def origin(self) -> OutputCheck | None:
        """Where a failure arises: the first group in the plan's order whose values fail, on the first set that
        fails."""
        sets = [c.set for c in self.failures]
        return next((c for s in sets for c in self.groups if c.set == s and not c.ok), None)

    @property
    def verdicts(self) -> dict[str, int]:
        """How many checks ended with each verdict."""
        return dict(Counter(c.verdict for c in self.checks))

    @property
    def counts(self) -> str:
        """How many checks on how many sets of values, and how many of them ended with each verdict."""
        ends = ", ".join(f"{n} {v}" for v, n in self.verdicts.items())
        return f"{count(len(self.checks), 'check')} on {count(len(self.sets), 'set')} of values: {ends}"

    def summary(self) -> str:
        """One line for a person: the counts and every failure."""
        bad = [*self.faults, *(f"{c.output} on {c.set!r}: {c.verdict} ({c.detail})" for c in self.failures)]
        return f"{self.counts}; FAILED: {'; '.join(bad)}" if bad else self.counts


def _worst(checks: Iterable[OutputCheck]) -> tuple[OutputCheck, ...]:
    worst: dict[tuple[str, str], OutputCheck] = {}
    for c in checks:
        held = worst.get((c.group, c.output))
        if held is None or (not c.ok and VERDICTS.index(c.verdict) > VERDICTS.index(held.verdict)):
            worst[c.group, c.output] = c
    return tuple(worst.values())
