"""What sampled calls show: how far fused results lie from eager's, and whether float64 calls them worse.

Eager runs on copies that were taken before the call, with the same random numbers; module state that the call changes
is put back in between. Only where the two differ by more than rounding is the float64 reference computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from fusebound.analysis.numerics import ROUNDING
from fusebound.capture.captured import Captured
from fusebound.ir.graph import Ref
from fusebound.runtime.executable import Executable
from fusebound.verify.call import Leaf, Snapshot, bind, has_memory
from fusebound.verify.errors import Errors
from fusebound.verify.held import held
from fusebound.verify.memory import shared
from fusebound.verify.program import Outcome, Program, own_copies
from fusebound.verify.result import VERDICTS
from fusebound.verify.tolerance import rule
from fusebound.words import count

_SETTLED = 256
"""Elements that have to be judged before the rule on errors is believed where the program's own sensitivity explains
them: those of a few numbers are luck."""


@dataclass(frozen=True, slots=True)
class OutputDrift:
    """One output (or mutated input) over all sampled calls of one kind.

    `equal`, `rounding` and `judged` count calls: bit for bit, within `ROUNDING`, and beyond it, which were judged
    against float64. `largest` is max|fused − eager|, `largest_ulps` the same in ULP of the element, which end at 1/ε
    (docs/verifier.md). `verdict` is the worst so far of `verify.result.VERDICTS`, "" where no call was judged; `where`
    is the user's operator and line.
    """

    output: str
    where: str
    equal: int = 0
    rounding: int = 0
    judged: int = 0
    largest: float = 0.0
    largest_ulps: float = 0.0
    verdict: str = ""
    detail: str = ""

    @property
    def ok(self) -> bool:
        return self.verdict not in VERDICTS[-2:]

    def __str__(self) -> str:
        counts = f"{self.equal} equal, {self.rounding} within rounding, {self.judged} judged"
        verdict = f": {self.verdict}{f' ({self.detail})' if self.detail else ''}" if self.verdict else ""
        largest = f"largest difference {self.largest:.1e}, {self.largest_ulps:.3g} ULP"
        return f"{self.output} of {self.where}: {counts}{verdict}; {largest}"


@dataclass(frozen=True, slots=True)
class Drift:
    """The record of a function compiled with `check=`: `calls` in all, `sampled` of them also run eagerly.

    `faults` are differences that belong to no number: another exception, another shape, an input that eager leaves
    alone. `reason` says why nothing was compared, where that is so.
    """

    calls: int = 0
    sampled: int = 0
    outputs: tuple[OutputDrift, ...] = ()
    faults: tuple[str, ...] = ()
    reason: str = ""

    @property
    def ok(self) -> bool:
        return not self.faults and all(o.ok for o in self.outputs)

    @property
    def wrong(self) -> tuple[str, ...]:
        """What is worse than eager, a line each."""
        lines = (f"{o.output} of {o.where}: {o.verdict} ({o.detail})" for o in self.outputs if not o.ok)
        return (*self.faults, *lines)

    def __str__(self) -> str:
        """How many calls were compared, and a line for each output and each fault."""
        compared = f"{self.sampled} of them also run eagerly"
        if self.reason:
            compared = f"none compared with eager: {self.reason}"
        return "\n".join((f"{count(self.calls, 'call')}, {compared}", *map(str, self.outputs), *self.faults))


@dataclass(slots=True)
class Kept:
    """The record while it grows; errors of judged calls are pooled by output and shape."""

    sampled: int = 0
    outputs: dict[object, OutputDrift] = field(default_factory=dict[object, OutputDrift])
    pooled: dict[object, Errors] = field(default_factory=dict[object, Errors])
    faults: dict[str, None] = field(default_factory=dict[str, None])

    def shown(self, calls: int, reason: str) -> Drift:
        """The record as it stands; `reason` is why nothing was compared, should that be so."""
        why = reason if calls and not self.sampled else ""
        return Drift(calls, self.sampled, tuple(self.outputs.values()), tuple(self.faults), why)


class Twin:
    """Everything that eager needs to run the same call again; made before the call."""

    def __init__(
        self, captured: Captured, exe: Executable, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self._captured, self._exe = captured, exe
        self._given = tuple(args), dict(kwargs)
        self._args, self._kwargs = own_copies(captured, args, kwargs)
        changing = {m.target for m in captured.graph.mutations}
        state = [i.value for i in captured.graph.inputs if i.kind != "user" and i.value in changing]
        self._state = [captured.state[v]() for v in state]
        self._before = Snapshot(self._state)
        self._random = torch.get_rng_state()

    def compare(self, result: Any, error: Exception | None, kept: Kept) -> None:
        """Run eager, compare it with what the call returned or raised, and enter it in the record."""
        leaves = bind(self._captured, self._args, self._kwargs)
        given = bind(self._captured, *self._given)
        outputs = tuple(pytree.tree_leaves(result))
        sharing = shared(outputs, given)
        after = [_detached(leaf) for leaf in given]
        state, random = Snapshot(self._state), torch.get_rng_state()
        self._before.restore()
        try:
            plan = self._exe.plan
            bounds = held(plan, plan.graph.outputs, plan.tau, leaves)
            program = Program(
                self._exe, self._captured.fn, self._captured, self._args, self._kwargs, leaves, bounds
            )
            fused = Outcome(outputs, _changed(leaves, after), error, sharing)
            self._enter(program, fused, kept)
        finally:
            state.restore()
            torch.set_rng_state(random)

    def _enter(self, program: Program, fused: Outcome, kept: Kept) -> None:
        kept.sampled += 1
        eager = program.eager(self._random)
        found = program.apart(eager, fused, self._random)
        kept.faults.update(dict.fromkeys(found.faults))
        beyond = any(not _rounds(o.errors) for o in found.outputs)
        exact = program.judge(eager, fused, self._random) if beyond else found
        for near, judged in zip(found.outputs, exact.outputs, strict=True):
            key = near.name, near.shape, near.errors.dtype
            held = kept.outputs.get(key) or OutputDrift(near.name, self._where(near.name))
            kept.outputs[key] = self._grown(held, key, near.errors, judged.errors, kept, program)

    def _grown(
        self, old: OutputDrift, key: object, near: Errors, judged: Errors, kept: Kept, program: Program
    ) -> OutputDrift:
        """An output's record with one more call."""
        apart = near.whole.apart
        new = replace(
            old, largest=max(old.largest, apart.largest), largest_ulps=max(old.largest_ulps, apart.ulps)
        )
        if near.equal:
            return replace(new, equal=new.equal + 1)
        if _rounds(near):
            return replace(new, rounding=new.rounding + 1)
        pooled = kept.pooled.get(key)
        pooled = kept.pooled[key] = judged if pooled is None else pooled.merged(judged)
        numerics, tau = self._exe.plan.numerics, program.held.of(new.output)
        ruling = rule(pooled, tau=tau, numerics=numerics, transcendentals=program.transcendentals)
        new = replace(new, judged=new.judged + 1)
        if (
            ruling.verdict == "worse"
            and tau is None
            and pooled.explained
            and 0 < pooled.whole.count < _SETTLED
        ):
            return new
        return replace(new, verdict=ruling.verdict, detail=ruling.detail)

    def _where(self, output: str) -> str:
        """The user's operator behind `output 3`, with its line; the function's name for a mutated input."""
        graph, number = self._captured.graph, output.removeprefix("output ")
        made = self._captured.returns[int(number)] if number.isdigit() else None
        node = graph.producer.get(made.id) if isinstance(made, Ref) else None
        if node is None:
            return graph.name
        user = graph.user[node.user]
        return f"{user.name} ({user.source})"


def _rounds(errors: Errors) -> bool:
    """Whether two results differ by rounding at most."""
    return errors.equal or (not errors.changes and errors.whole.apart.ulps <= ROUNDING)


def _detached(leaf: Leaf) -> Any:
    """A leaf's value as it is now; state is written over later, so it is copied."""
    if not leaf.is_tensor or not has_memory(leaf.value):
        return leaf.value
    return leaf.value.detach() if leaf.kind == "user" else leaf.value.detach().clone()


def _changed(before: Sequence[Leaf], after: Sequence[Any]) -> dict[int, torch.Tensor]:
    """Inputs whose contents differ, by position."""
    pairs = enumerate(zip(before, after, strict=True))
    held = [(i, leaf.value, now) for i, (leaf, now) in pairs if leaf.is_tensor and has_memory(leaf.value)]
    return {i: now for i, old, now in held if not torch.equal(_bits(old), _bits(now))}


def _bits(t: torch.Tensor) -> torch.Tensor:
    """Contents that are equal only if every bit is."""
    return t.detach().contiguous().view(-1).view(torch.uint8) if t.numel() else t.detach()
