"""A random program captured, planned, built and run: what differs from eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.property.programs import Program as Source
from tests.property.unread import raises_unread

from fusebound.capture.torch import Captured, capture
from fusebound.engine.build import build
from fusebound.engine.rehearsal import rehearse
from fusebound.errors import CaptureError
from fusebound.ir.spec import verify as verify_graph
from fusebound.plan.greedy import plan
from fusebound.runtime.executable import Executable
from fusebound.target import get
from fusebound.verify.call import bind
from fusebound.verify.check import verify
from fusebound.verify.classes import NO_WORSE
from fusebound.verify.errors import Errors
from fusebound.verify.inputs import GIVEN
from fusebound.verify.program import Outcome, Program, own_copies
from fusebound.verify.result import VerifyResult
from fusebound.verify.tolerance import rule

PLANNED_FOR = "cpu-avx512"
"""A table in which launches are dear, so that small shapes are fused too."""
FOREVER = 10**9
"""Calls over which compiling is spread: here it always pays."""
SPECIAL = "special values"
LAST_BITS = 2.0**10
"""ULP at an output's rms that ten steps in float64 may lose to each other by cancelling."""


@dataclass(frozen=True, slots=True)
class Found:
    """`why` says why a program does not count, if it doesn't: no kernel of it holds several operators; `fault` is what
    differs from eager."""

    why: str = ""
    fault: str = ""


def check(source: Source) -> Found:
    """Under a policy and a number of threads drawn from the program's seed, on two sets of values and, for some
    programs, on special ones. What `fusebound.compile` leaves to eager, since its rehearsal shows other layouts, does
    not count."""
    r = Random(source.seed)
    policy = r.choices(("tile", "loop", "elementwise", "none"), (12, 3, 3, 1))[0]
    threads, second, special = r.choice((1, 1, 2)), r.randrange(2, 42), r.random() < 0.3
    args = source.arguments(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            captured = capture(source.function, args)
        except CaptureError as error:
            return Found(error.code)
        verify_graph(captured.graph)
        made = plan(captured.graph, target=get(PLANNED_FOR), policy=policy, expected_calls=FOREVER)
        exe = build(made, captured, threads=threads)
        for poison in (False, True):  # in the form that calls take, and step by step in poisoned memory
            exe.poison = poison
            if (apart := rehearse(exe, captured, args, {})) is None:
                continue
            excused = apart.only_layout or judged(captured, exe, args, GIVEN)  # a size may lie on a tie
            return Found("laid out otherwise") if excused else Found(fault=apart.text)
        why = "" if any(len(k.users) > 1 for k in made.kernels) else "no kernel of several operators"
        for values in (1, second):
            exe.poison = values == 1
            if fault := differs(source, captured, exe, values):
                return Found(why, f"{fault} (policy {policy}, {threads} threads, values {values})")
        if special and not source.exact and not (found := judged(captured, exe, args, SPECIAL)):
            return Found(why, f"{found.summary()} (policy {policy}, {threads} threads)")
    return Found(why)


def differs(source: Source, captured: Captured, exe: Executable, values: int) -> str:
    """What is not as eager has it on one set of values, or nothing: bits where the program is exact, else the rule of
    docs/gates.md; types, shapes, strides, exceptions, and which results and inputs share memory."""
    args, kwargs = own_copies(captured, source.arguments(values), {})
    run = Program(exe, source.function, captured, args, kwargs, bind(captured, args, kwargs))
    theirs, mine = run.eager(0), run.fused(0)
    if theirs.error is not None and raises_unread(captured, source.arguments(values)):
        return ""
    found = run.apart(theirs, mine, 0)
    if found.faults or found.raised:
        return "; ".join(found.faults)
    wrong = {o.name: r for o in found.outputs if (r := rule(o.errors)).verdict != "equal"}
    exact = source.is_exact(values)
    zeros = all(only_signs(o.errors) for o in found.outputs if o.name in wrong)
    if not wrong or ((zeros or not exact) and near(run, theirs, mine)):
        return ""
    if exact:
        return "; ".join(f"{name}: {r.verdict}: {r.detail}" for name, r in wrong.items())
    result = judged(captured, exe, source.arguments(values), GIVEN)
    return "" if result else result.summary()


def judged(captured: Captured, exe: Executable, args: tuple[Any, ...], kind: str) -> VerifyResult:
    """What the verifier finds. Where no reference is wider than float64, eager stands in for it and is taken to have no
    error at all; that its last bits differ is then no failure, up to `LAST_BITS`."""
    found = verify(plain(exe), captured, args, sets=(kind,))
    if not any(note.startswith("no reference wider") for note in found.notes):
        return found
    return replace(
        found,
        checks=tuple(
            c for c in found.checks
            if not (c.dtype == "float64" and c.verdict == "worse" and c.apart.ulps <= LAST_BITS)
        ),
    )  # fmt: skip


def only_signs(errors: Errors) -> bool:
    """Whether nothing but signs of zeros differs from eager. Among extremes eager's hang on the place in the tensor, so
    that the verifier's reference decides, which has IEEE's."""
    return not errors.whole.apart.largest and all(c.kind in ("signed zero", NO_WORSE) for c in errors.changes)


def near(run: Program, theirs: Outcome, mine: Outcome) -> bool:
    """Whether one run of each is enough to see that the built program is no worse."""
    found = run.judge(theirs, mine, 0)
    return not found.faults and all(rule(o.errors).ok for o in found.outputs)


def plain(exe: Executable) -> Callable[..., Any]:
    """The executable without its plan: what groups store would be traced, and explains a failure only."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return exe(*args, **kwargs)

    call.counted_draws = exe.counted_draws  # type: ignore[attr-defined]
    return call
