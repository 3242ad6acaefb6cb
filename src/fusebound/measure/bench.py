"""Speed of a built program against eager and others, in one interleaved run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from fusebound.measure.baselines import Baseline, baseline, without_gradients
from fusebound.measure.environment import crowded
from fusebound.measure.statistics import Ratio, Samples, ratio
from fusebound.measure.timer import interleave
from fusebound.words import count

FUSED = "fused"
SLOWER_SHARE, SLOWER_US = 0.02, 0.5
"""Slower means by more than this share and this many µs: less is within what eager shows against itself."""

_CONFIRMATIONS = 2
_LARGE = 1 << 20
"""Bytes of output from which it matters whether memory is fresh: page faults begin there."""


class Function(Protocol):
    """What measuring needs of a captured function."""

    @property
    def fn(self) -> Callable[..., Any]: ...


@dataclass(frozen=True, slots=True)
class Opponent:
    """One opponent in the same run. `speedup` is its time over the fused one, `held` the same with every
    result kept alive (None where results are small); `slower` says that fused lost in three runs of
    three."""

    name: str
    times: Samples
    speedup: Ratio
    held_times: Samples | None
    held: Ratio | None
    slower: bool
    compile_s: float


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Times in µs. `kernels` are the median times of the plan's groups, run one by one."""

    fused: Samples
    fused_held: Samples | None
    opponents: tuple[Opponent, ...]
    kernels: tuple[tuple[str, float], ...]
    threads: int
    rounds: int
    warnings: tuple[str, ...]
    seconds: float

    def against(self, name: str) -> Opponent:
        """The opponent called `name`; raises KeyError if it was not measured."""
        for opponent in self.opponents:
            if opponent.name == name:
                return opponent
        raise KeyError(name)

    @property
    def speedup(self) -> Ratio:
        """Over the first opponent (eager by default)."""
        return self.opponents[0].speedup

    @property
    def slower(self) -> bool:
        """Whether the program lost to eager, confirmed in three runs."""
        return any(o.slower for o in self.opponents if o.name == "eager")


def bench(
    exe: Callable[..., object],
    captured: Function,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    against: Sequence[str] = ("eager",),
    rounds: int = 21,
    budget_s: float = 6.0,
) -> BenchResult:
    """Time `exe` and its opponents on `args`, without gradients, in interleaved rounds.

    Results are dropped at once in the main run; where they are large a second run keeps them all alive, so
    that every call writes fresh memory. Arguments that the function changes are reset before every sample.
    A loss is confirmed by two more runs. `budget_s` bounds each run, not the last round of it. Raises
    UsageError for an unknown opponent.
    """
    start = time.perf_counter()
    args, kwargs = tuple(args), dict(kwargs or {})
    fused = without_gradients(exe, args, kwargs)
    with _kept(captured.fn, args, kwargs) as reset:
        opponents = [baseline(name, captured.fn, args, kwargs) for name in against]
        calls = {FUSED: fused, **{o.name: o.call for o in opponents}}

        def run(hold: bool = False) -> dict[str, Samples]:
            return interleave(calls, rounds=rounds, hold=hold, budget_s=budget_s, before=reset)

        main = run()
        held = run(hold=True) if _output_bytes(fused) >= _LARGE else None
        lost = _lost(main, calls)
        for _ in range(_CONFIRMATIONS if lost else 0):
            lost &= _lost(run(), calls)
        kernels = _profile(exe, args, kwargs)
    return BenchResult(
        fused=main[FUSED],
        fused_held=held[FUSED] if held else None,
        opponents=tuple(_opponent(o, main, held, o.name in lost) for o in opponents),
        kernels=kernels,
        threads=torch.get_num_threads(),
        rounds=len(main[FUSED].times_us),
        warnings=(*(w for s in main.values() for w in s.warnings), *crowded(), *_copies(exe)),
        seconds=time.perf_counter() - start,
    )


def is_slower(fused: Samples, other: Samples) -> bool:
    """Whether fused loses by more than 2 % and 0.5 µs, medians over rounds of the same run."""
    slack = max(other.median * SLOWER_SHARE, SLOWER_US)
    return fused.median > other.median + slack and ratio(fused, other).value > 1 + SLOWER_SHARE


def _lost(times: Mapping[str, Samples], calls: Mapping[str, object]) -> set[str]:
    return {name for name in calls if name != FUSED and is_slower(times[FUSED], times[name])}


def _opponent(
    b: Baseline, main: Mapping[str, Samples], held: Mapping[str, Samples] | None, slower: bool
) -> Opponent:
    return Opponent(
        name=b.name,
        times=main[b.name],
        speedup=ratio(main[b.name], main[FUSED]),
        held_times=held[b.name] if held else None,
        held=ratio(held[b.name], held[FUSED]) if held else None,
        slower=slower,
        compile_s=b.compile_s,
    )


def _profile(exe: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """Times of the groups, where `exe` can take them (`exe.profile(args, kwargs)` → µs by group)."""
    profile = getattr(exe, "profile", None)
    return tuple(profile(args, kwargs).items()) if profile else ()


def _copies(exe: object) -> Iterator[str]:
    """What a call moves besides its groups' bytes (`exe.copied_back`: bytes by input)."""
    found: Mapping[str, int] = getattr(exe, "copied_back", {})
    if found:
        moved = count(sum(found.values()), "byte")
        yield f"{', '.join(found)}: changed by a copy at the end, {moved} that the prediction leaves out"


def _output_bytes(call: Callable[[], object]) -> int:
    return sum(t.nbytes for t in _tensors(call()))


def _tensors(tree: object) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


@contextmanager
def _kept(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[Callable[[], None] | None]:
    """Yields a function that gives the arguments which `fn` changes their values back, None if it changes
    none.

    Without it the values of a step that updates its arguments would run away while they are timed.
    """
    given = [(t, t.detach().clone()) for t in _tensors((args, kwargs)) if t.layout == torch.strided]
    without_gradients(fn, args, kwargs)()
    changed = [(t, old) for t, old in given if not torch.equal(t, old) and not bool(old.isnan().any())]

    def reset() -> None:
        with torch.no_grad():
            for t, old in changed:
                t.copy_(old)

    reset()
    try:
        yield reset if changed else None
    finally:
        reset()
