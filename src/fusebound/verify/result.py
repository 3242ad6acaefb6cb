"""What verification found: one check per output and set of values, and the checks of the run as a whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

VERDICTS = ("equal", "nearer fp64", "as eager", "within τ", "worse", "class changed")
"""From best to worst; the last two fail."""


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """One output (or mutated input) on one set of values. Errors are absolute, against fp64; `*_ulps` are the
    rms error in ULP of the output's type at the output's rms. `distance` is max|fused − eager|."""

    set: str
    output: str
    dtype: str
    shape: tuple[int, ...]
    verdict: str
    detail: str
    fused_rms: float
    fused_max: float
    eager_rms: float
    eager_max: float
    fused_ulps: float
    eager_ulps: float
    distance: float

    @property
    def ok(self) -> bool:
        return self.verdict not in VERDICTS[-2:]


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The outcome of `check.verify`. `deterministic` and `threads` say whether two runs, and runs with
    another thread count, gave the same bits (None: not decided, because eager itself differs). `raised`
    lists sets on which eager raises, and so does the program; `faults` are failures that belong to no
    output."""

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
        worst: dict[str, OutputCheck] = {}
        for c in self.checks:
            held = worst.get(c.output)
            if held is None or (not c.ok and VERDICTS.index(c.verdict) > VERDICTS.index(held.verdict)):
                worst[c.output] = c
        return tuple(worst.values())

    @property
    def verdicts(self) -> dict[str, int]:
        """How many checks ended with each verdict."""
        return dict(Counter(c.verdict for c in self.checks))

    def summary(self) -> str:
        """One line for a person."""
        bad = [*self.faults, *(f"{c.output} on {c.set!r}: {c.verdict} ({c.detail})" for c in self.failures)]
        counts = ", ".join(f"{n} {v}" for v, n in self.verdicts.items())
        head = f"{len(self.checks)} checks on {len(self.sets)} sets of values: {counts}"
        return f"{head}; FAILED: {'; '.join(bad)}" if bad else head
