"""Runs a built program against eager and the fp64 oracle, on the user's values and on hard ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fusebound.analysis.tau import Tau
from fusebound.errors import unknown
from fusebound.plan.plan import Plan
from fusebound.verify import coverage
from fusebound.verify.call import Capture, Leaf, Snapshot, bind, tensors
from fusebound.verify.compare import Output
from fusebound.verify.errors import Errors, Gap, pooled
from fusebound.verify.groups import Stored, stored
from fusebound.verify.held import Held, held
from fusebound.verify.inputs import (
    AS_A_WHOLE,
    GIVEN,
    LIKE,
    PLAIN,
    RARE,
    SPECIAL_SETS,
    fill,
    floats,
    index_sets,
    integer_sets,
    state_sets,
)
from fusebound.verify.layouts import CALLS, EXPANDED, OVERLAPPING, level, overlapped, relaid
from fusebound.verify.program import Comparison, Outcome, Program, own_copies
from fusebound.verify.repeat import Repeats, differs, repeat
from fusebound.verify.result import Figures, OutputCheck, VerifyResult
from fusebound.verify.tolerance import Ruling, rule
from fusebound.verify.verdict import DRAWS, FEWEST, MOST, rule_on_draws

_SMALL = 256
"""Outputs of fewer elements are judged over several draws: the error of a few numbers is luck."""
_PLACES = 4096
"""The same for the sets `RARE`."""
_SEARCH = 8
"""Draws in search of values that take another branch."""


def verify(
    exe: Callable[..., object],
    captured: Capture,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    eager: Callable[..., object] | None = None,
    numerics: str = "accurate",
    tau: Tau | None = None,
    sets: Sequence[str] = (),
    seed: int = 0,
    budget_s: float = 20.0,
) -> VerifyResult:
    """Compare `exe` with eager (`captured.fn` unless given) and the oracle, by the rule of `tolerance`.

    The sets of values, those of `inputs` by name or all of them: the arguments as given, values like them with
    parameters, buffers and integers drawn anew, indices at and beyond the bounds of every axis, NaN/Inf/zeros/
    subnormals, two large means, rows of -Inf, a wide range, tiny, subnormal and equal values, peaks, rows of zeros, and
    the program's own constants. No set but the first begins after `budget_s` seconds; those left out are listed as
    skipped.
    Where `exe` has a plan, what its kernels store is compared as well. Where it has an attribute `poison` it is
    set, so that memory not written shows. Values are drawn anew, some times, for a branch that none of the sets took;
    one that is never taken is noted. Arguments, parameters and buffers hold their values again afterwards.
    Raises UsageError for the name of no set.
    """
    start = time.perf_counter()
    args, kwargs = own_copies(captured, args, kwargs or {})
    leaves = bind(captured, args, kwargs)
    known = (*all_sets(leaves), *SPECIAL_SETS)
    for kind in sets:
        if kind not in known:
            raise unknown("set of values", kind, known)
    given = Snapshot(tensors(leaves))
    plan = getattr(exe, "plan", None)
    bounds = held(plan, plan.graph.outputs, tau, leaves) if isinstance(plan, Plan) else Held(tau)
    program = Program(exe, eager or captured.fn, captured, args, kwargs, leaves, bounds)
    groups = stored(exe, args, kwargs, tau)
    judge = _Judge(program, groups, given, seed, numerics, start + budget_s)
    poisoned = _set_poison(exe, True)
    try:
        repeats = repeat(program)
        coverage.start(exe)
        for kind in sets or all_sets(leaves):
            judge.run(kind)
        judge.enter(exe)
        given.restore()
        program.settle()
        found = judge.result(repeats, poisoned, time.perf_counter() - start)
        if poisoned and found.ok and repeats.deterministic:
            watched = program.fused(0)
            _set_poison(exe, False)
            if fault := differs(watched, program.fused(0)):
                found = replace(found, faults=(fault,))
    finally:
        _set_poison(exe, False)
        given.restore()
    return found


def all_sets(leaves: Sequence[Leaf]) -> tuple[str, ...]:
    """The names of the sets of values that say something about a call."""
    special = (*SPECIAL_SETS, *state_sets(leaves)) if floats(leaves) else ()
    return (*PLAIN, *index_sets(leaves), *integer_sets(leaves), *special, *CALLS)


def _set_poison(exe: object, on: bool) -> bool:
    """Ask `exe` to fill outputs and scratch with garbage before each run, if it can."""
    if not hasattr(exe, "poison"):
        return False
    exe.poison = on  # type: ignore[attr-defined]
    return True


class _Judge:
    """Runs the sets of values and collects checks, faults and notes."""

    def __init__(
        self, program: Program, groups: Stored | str, given: Snapshot, seed: int, numerics: str,
        deadline: float,
    ) -> None:  # fmt: skip
        self._program, self._groups, self._given, self._seed = program, groups, given, seed
        self._numerics, self._deadline = numerics, deadline
        self._checks: list[OutputCheck] = []
        self._stored: list[OutputCheck] = []
        self._sets: list[str] = []
        self._skipped: list[str] = []
        self._unjudged: dict[str, str] = {}
        self._raised: list[str] = []
        self._faults: list[str] = []
        self._notes: dict[str, None] = {groups: None} if isinstance(groups, str) and groups else {}

    def run(self, kind: str) -> None:
        """Compare on one set of values; what the groups store too, on plain values and where something fails."""
        if self._sets and time.perf_counter() > self._deadline:
            self._skipped.append(kind)
            return
        self._sets.append(kind)
        checks = self._compared(kind, self._program)
        self._checks.extend(checks)
        if kind in self._unjudged and not checks:
            self._sets.remove(kind)
        if kind in CALLS:
            return
        if isinstance(self._groups, str) or (kind != GIVEN and time.perf_counter() > self._deadline):
            return
        if kind in PLAIN or not all(c.ok for c in checks):
            found = {c.output: c for c in self._compared(kind, self._groups.program)}
            for i, (group, value) in enumerate(self._groups.names):
                if (c := found.get(f"output {i}")) is not None:
                    self._stored.append(replace(c, output=value, group=group))

    def enter(self, exe: object) -> None:
        """Draw further values while there is a branch or a loop's body that none has reached; note what is left."""
        for number in range(DRAWS, DRAWS + _SEARCH):
            before = coverage.missed(exe)
            if not before or time.perf_counter() > self._deadline:
                break
            draw = self._draw(LIKE, number, self._program)
            if draw is not None and coverage.missed(exe) != before:
                self._checks.extend(self._settled(LIKE, [draw], self._program))
        self._notes.update({f"{name} ran on none of these values": None for name in coverage.missed(exe)})

    def _compared(self, kind: str, program: Program) -> list[OutputCheck]:
        """Small outputs over several draws, and over more where one is worse, or almost."""
        draws = [self._draw(kind, 0, program)]
        few = _PLACES if kind in RARE else _SMALL
        small = kind != GIVEN and (draws[0] is None or any(c.numel < few for c in draws[0].outputs))
        draws += [self._draw(kind, i, program) for i in range(1, DRAWS)] if small else []
        return self._settled(kind, draws, program) if any(draws) else []

    def _settled(self, kind: str, draws: list[Comparison | None], program: Program) -> list[OutputCheck]:
        """The verdicts over these draws, and over further ones while they may change a verdict."""
        checks, unsettled = self._judged(kind, draws, program)
        more = LIKE if kind == GIVEN else kind
        while unsettled and len(draws) < MOST:
            if len(draws) >= FEWEST and time.perf_counter() > self._deadline:
                break
            draws += [self._draw(more, i, program) for i in range(len(draws), 2 * len(draws))]
            checks, unsettled = self._judged(kind, draws, program)
        return checks

    def _draw(self, kind: str, number: int, program: Program) -> Comparison | None:
        """One comparison of the program, or of what its groups store, on values drawn for the program."""
        self._given.restore()
        seed = self._seed + 1000 * number
        if kind != GIVEN:
            fill(self._program.leaves, kind, seed, self._program.constants, number)
        if kind == EXPANDED:
            level(self._program.leaves)
        program.settle()
        found = self._called(kind, number, seed) if kind in CALLS else program.compare(seed)
        if program is self._program:
            self._take(found, kind)
        return found if found.outputs else None

    def _called(self, kind: str, number: int, seed: int) -> Comparison:
        """The program on arguments that lie otherwise in memory than those that it was built for."""
        program = self._program
        eager = program.eager(seed)
        if eager.error is not None:
            return Comparison(unjudged=f"eager raises {type(eager.error).__name__}")
        if kind == OVERLAPPING:
            pairs = overlapped(program.leaves, eager.changed)
            if not pairs:
                return Comparison(unjudged="no argument is written that has another of its type beside it")
            program = program.on(pairs[number % len(pairs)], eager.changed)
            eager, fused = program.eager(seed), program.fused(seed)
        elif moved := relaid(program.leaves, kind, eager.changed):
            other = program.on(moved)
            if not self._alike(
                eager, other.eager(seed), seed
            ):  # a view that raises, draws that follow memory
                return Comparison(unjudged="eager itself does not give the same on them")
            fused = other.fused(seed).laid_like(eager)
        else:
            return Comparison(unjudged="no argument can lie so")
        if fused.refused:
            return Comparison(unjudged=f"the program refuses such arguments: {fused.refused}")
        return program.judge(eager, fused, seed)

    def _alike(self, eager: Outcome, moved: Outcome, seed: int) -> bool:
        """Whether the layout of the arguments changes nothing for eager itself but roundings."""
        found = self._program.judge(eager, moved.laid_like(eager), seed)
        return not (found.raised or found.faults) and all(
            rule(e).ok or (e.explained and not e.forbidden) for e in (o.errors for o in found.outputs)
        )

    def _take(self, found: Comparison, kind: str) -> None:
        """Keep what belongs to no output."""
        where = f" on {kind!r}"
        self._faults.extend(fault + where for fault in found.faults if fault + where not in self._faults)
        self._notes.update(dict.fromkeys(note + where for note in found.notes))
        if found.unjudged:
            self._unjudged.setdefault(kind, found.unjudged)
        if found.raised:
            self._raised.append(f"{found.raised}{where}")

    def _judged(
        self, kind: str, draws: Sequence[Comparison | None], program: Program
    ) -> tuple[list[OutputCheck], bool]:
        """The outputs over all draws, and whether more of them may change one. An input that is written is an output of
        the draws in which that changes it."""
        found: dict[str, list[Output]] = {}
        for output in (o for d in draws if d for o in d.outputs):
            found.setdefault(output.name, []).append(output)
        checks: list[OutputCheck] = []
        unsettled = False
        for output, *others in found.values():
            errors = [o.errors for o in (output, *others)]
            if kind in AS_A_WHOLE:
                errors = [replace(e, parts=e.parts[:1]) for e in errors]
            ruling, more = rule_on_draws(
                errors,
                tau=program.held.of(output.name),
                numerics=self._numerics,
                transcendentals=self._program.transcendentals,
            )
            unsettled |= more
            checks.append(_check(kind, output.name, output.shape, pooled(errors), ruling))
        return checks, unsettled

    def result(self, repeats: Repeats, poisoned: bool, seconds: float) -> VerifyResult:
        """Everything found. A set of which some draws were judged and others not is judged, with a note."""
        partly = [f"{why}, on some of {k!r}" for k, why in self._unjudged.items() if k in self._sets]
        return VerifyResult(
            checks=tuple(self._checks),
            sets=tuple(self._sets),
            skipped=tuple(self._skipped),
            raised=tuple(dict.fromkeys(self._raised)),
            faults=(*repeats.faults, *self._faults),
            notes=(*self._notes, *partly),
            deterministic=repeats.deterministic,
            threads=repeats.threads,
            poisoned=poisoned,
            seconds=seconds,
            groups=tuple(self._stored),
            unjudged=tuple((k, why) for k, why in self._unjudged.items() if k not in self._sets),
        )


def _check(kind: str, name: str, shape: tuple[int, ...], errors: Errors, ruling: Ruling) -> OutputCheck:
    whole = errors.whole
    fused, eager, apart = (_figures(errors, gap) for gap in (whole.fused, whole.eager, whole.apart))
    return OutputCheck(
        set=kind,
        output=name,
        dtype=str(errors.dtype).removeprefix("torch."),
        shape=shape,
        verdict=ruling.verdict,
        detail=ruling.detail,
        fused=fused,
        eager=eager,
        apart=apart,
        changes=errors.changes,
    )


def _figures(errors: Errors, gap: Gap) -> Figures:
    rms, size = errors.whole.rms(gap), errors.whole.value_rms
    ulps = rms / errors.step if errors.step else 0.0
    return Figures(rms, gap.largest, rms / size if size else 0.0, ulps, gap.ulps)
