"""What a survivor has to show: the original's bits, or the contract kept, on values that the verifier did not draw.

The verifier's own sets would hide here what they hide there. `hostile` values are bit patterns drawn evenly, so that
all exponents, subnormals, infinities and NaN are there, and numbers of a small pool that meet, cancel and vanish, in
parameters and buffers too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from tests.mutation.harness import Mutation, Plain, Subject, changed_program
from torch import Tensor

from fusebound.capture.torch import Captured
from fusebound.verify.call import Leaf, bind
from fusebound.verify.check import all_sets, verify
from fusebound.verify.errors import Errors, Exact, measure
from fusebound.verify.inputs import fill
from fusebound.verify.oracle import reference
from fusebound.verify.program import Outcome, Program, own_copies
from fusebound.verify.repeat import _same

DRAWS = 24
"""Hostile draws beside two of every set of the verifier's: tens of thousands of elements for the smallest program."""
SEEDS = (11, 12)
FURTHER = range(101, 107)
SELDOM = 0.01
FAR = 4
HELD = (torch.float32, torch.bfloat16, torch.float16)
"""Types whose errors float64 shows."""
BITS = {torch.float32: torch.int32, torch.float64: torch.int64, torch.bfloat16: torch.int16}


def same_bits(subject: Subject, mutation: Mutation) -> bool:
    """Whether the changed program gives the original's bits on all these values, and raises what it raises."""
    exe = changed_program(subject, mutation)
    args, kwargs = own_copies(subject.captured, subject.given, {})
    leaves = bind(subject.captured, args)
    runs = [Program(e, e, subject.captured, args, kwargs, leaves) for e in (subject.executable(), exe)]
    return all(_agree([_outcome(run, seed) for run in runs]) for seed in _values(leaves, runs[0].constants))


def _values(leaves: Sequence[Leaf], constants: Sequence[float]) -> Iterator[int]:
    """Overwrite the leaves with one set of values after the other."""
    for kind in all_sets(leaves)[1:]:
        for seed in SEEDS:
            fill(leaves, kind, seed, constants)
            yield seed
    for seed in range(DRAWS):
        hostile(
            [leaf.value for leaf in leaves if leaf.is_tensor and leaf.kind not in ("const", "other")], seed
        )
        yield seed


def hostile(tensors: Sequence[Tensor], seed: int) -> None:
    """Overwrite floats with hostile values: every second time bit patterns, else a pool of few numbers."""
    generator = torch.Generator().manual_seed(seed)
    for t in tensors:
        if t.dtype not in BITS:
            continue
        integers = BITS[t.dtype]
        span = torch.iinfo(integers)
        patterns = torch.randint(span.min, span.max, t.shape, generator=generator, dtype=integers).view(
            t.dtype
        )
        least = torch.finfo(t.dtype).tiny
        pool = torch.tensor(
            [0.0, -0.0, least / 4, -least / 4, least, 1.0, -1.0, 1.0 + 2**-7, 0.05, 300.0, -1e30]
        )
        rare = torch.tensor([float("inf"), float("-inf"), float("nan")])
        drawn = pool[torch.randint(len(pool), t.shape, generator=generator)]
        special = torch.rand(t.shape, generator=generator) < (0.02 if seed % 4 == 1 else 0.0)
        drawn = torch.where(special, rare[torch.randint(3, t.shape, generator=generator)], drawn).to(t.dtype)
        with torch.no_grad():
            t.copy_(drawn if seed % 2 else patterns)


def _outcome(run: Program, seed: int) -> Outcome:
    run.settle()
    return run.fused(seed)


def _agree(outcomes: Sequence[Outcome]) -> bool:
    a, b = outcomes
    return type(a.error) is type(b.error) and (a.error is not None or _same(a, b))


def keeps_contract(subject: Subject, mutation: Mutation) -> bool:
    """Whether the changed program is no worse than eager on three further draws of every set, and on hostile
    arguments wherever the original is not; and nowhere far off."""
    exe, original = changed_program(subject, mutation), Plain(subject.executable())
    given = subject.captured, subject.given
    return (
        bounded(subject, mutation)
        and all(verify(exe, *given, seed=seed).ok for seed in (101, 102, 103))
        and all(
            verify(exe, subject.captured, args, sets=("given",)).ok
            or not verify(original, subject.captured, args, sets=("given",)).ok
            for args in (_hostile_args(subject, seed) for seed in range(DRAWS))
        )
    )


def bounded(subject: Subject, mutation: Mutation) -> bool:
    """Whether on further draws of every set no result is `FAR` times as far from fp64 as eager's at the worst of them,
    or as 2 ULP. The verifier has no say in this: what it excuses and must not would excuse itself."""
    args, kwargs = own_copies(subject.captured, subject.given, {})
    leaves = bind(subject.captured, args)
    exe = changed_program(subject, mutation)
    run = Program(exe, subject.captured.fn, subject.captured, args, kwargs, leaves)
    for kind in all_sets(leaves):
        worst: dict[str, list[tuple[float, float, float]]] = {}
        for seed in range(201, 201 + DRAWS):
            fill(leaves, kind, seed, run.constants, seed)
            run.settle()
            for name, errors in _measured(run, subject.captured, seed):
                part = errors.whole
                found = part.fused.norm, part.eager.norm, 2 * errors.step * part.count**0.5
                worst.setdefault(name, []).append(found)
        for draws in worst.values():
            mine, theirs, steps = (max(column) for column in zip(*draws, strict=True))
            if mine > FAR * max(theirs, steps):
                return False
    return True


def _measured(run: Program, captured: Captured, seed: int) -> Iterator[tuple[str, Errors]]:
    """The errors of what both runs give in floats that float64 is wider than, as they are: nothing is excused."""
    eager, fused = run.eager(seed), run.fused(seed)
    if eager.error or fused.error:
        return
    true = reference(captured, run.leaves)
    written = eager.changed.keys() & fused.changed.keys()
    found = [
        (f"output {i}", *three)
        for i, three in enumerate(zip(fused.outputs, eager.outputs, true.outputs, strict=True))
    ]
    found += [(f"input {i}", fused.changed[i], eager.changed[i], true.inputs[i]) for i in sorted(written)]
    for name, mine, theirs, exact in found:
        if isinstance(theirs, Tensor) and theirs.dtype in HELD and mine.shape == theirs.shape == exact.shape:
            yield name, measure(mine, theirs, Exact(exact))


def seldom_breaks(subject: Subject, mutation: Mutation) -> bool:
    """Whether less than `SELDOM` of the checks on further draws of every set fail, and none of the original's."""
    exe, original = changed_program(subject, mutation), Plain(subject.executable())

    def checks(run: Callable[..., Any]) -> list[bool]:
        found = (verify(run, subject.captured, subject.given, seed=seed) for seed in FURTHER)
        return [c.ok for result in found for c in result.checks]

    kept = checks(exe)
    return bounded(subject, mutation) and all(checks(original)) and kept.count(False) < SELDOM * len(kept)


def _hostile_args(subject: Subject, seed: int) -> tuple[Any, ...]:
    args = tuple(a.clone() for a in subject.given)
    hostile(args, seed)
    return args
