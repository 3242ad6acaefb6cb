"""From which size on fusing pays: one function at growing sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusebound.measure.baselines import without_gradients
from fusebound.measure.bench import FUSED
from fusebound.measure.statistics import Ratio, Samples, ratio
from fusebound.measure.timer import interleave

Shape = tuple[int, ...]
Built = tuple[Callable[..., object], Callable[..., object], Sequence[Any], Mapping[str, Any]]
"""A built program, the eager function, and arguments by position and by keyword."""


@dataclass(frozen=True, slots=True)
class Point:
    """One size: times in µs, `speedup` is eager's time over the fused one."""

    shape: Shape
    fused: Samples
    eager: Samples
    speedup: Ratio


@dataclass(frozen=True, slots=True)
class Sweep:
    """Sizes in the order given."""

    points: tuple[Point, ...]

    @property
    def pays_from(self) -> Shape | None:
        """The first size from which on fused is faster at every later one, beyond doubt; None if it never
        is."""
        found: Shape | None = None
        for point in reversed(self.points):
            if point.speedup.low <= 1.0:
                break
            found = point.shape
        return found


def sweep(build: Callable[[Shape], Built], shapes: Iterable[Shape], *, rounds: int = 15) -> Sweep:
    """Build and time at every shape, in the order given (from small to large to make sense of
    `pays_from`)."""
    return Sweep(tuple(_point(shape, build(shape), rounds) for shape in shapes))


def _point(shape: Shape, built: Built, rounds: int) -> Point:
    exe, eager, args, kwargs = built
    calls = {FUSED: without_gradients(exe, args, kwargs), "eager": without_gradients(eager, args, kwargs)}
    times = interleave(calls, rounds=rounds)
    return Point(shape, times[FUSED], times["eager"], ratio(times["eager"], times[FUSED]))
