"""Medians, spread, ratios with an interval, and warnings about samples that should not be believed."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fusebound.words import count

_RESAMPLES = 1000
_NOISY = 0.15
"""Interquartile range over median above which a measurement is called noisy."""


def quantile(values: Sequence[float], q: float) -> float:
    """The `q` quantile (0 to 1) by linear interpolation; raises ValueError for no values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of positive numbers; raises ValueError for none."""
    return statistics.geometric_mean(values)


@dataclass(frozen=True, slots=True)
class Samples:
    """Microseconds per call, one figure a round; each is the mean of `batch` calls made in a row."""

    name: str
    times_us: tuple[float, ...]
    batch: int = 1

    @property
    def median(self) -> float:
        """Microseconds."""
        return statistics.median(self.times_us)

    @property
    def best(self) -> float:
        """The fastest tenth, microseconds: what the machine can do when nothing else runs."""
        return quantile(self.times_us, 0.1)

    @property
    def iqr(self) -> float:
        """Interquartile range, microseconds."""
        return quantile(self.times_us, 0.75) - quantile(self.times_us, 0.25)

    @property
    def spread(self) -> float:
        """Interquartile range over the median."""
        return self.iqr / self.median if self.median else 0.0

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes these samples doubtful, in words."""
        found: list[str] = []
        if len(self.times_us) < 5:
            found.append(f"{self.name}: only {count(len(self.times_us), 'round')}")
        if self.spread > _NOISY:
            found.append(f"{self.name}: spread {self.spread:.0%} of the median")
        fence = quantile(self.times_us, 0.75) + 3 * self.iqr
        # A machine's timer tick alone is no outlier: a tenth of the median is asked for as well.
        far = sum(t > max(fence, 1.1 * self.median) for t in self.times_us)
        if far:
            found.append(f"{self.name}: {far} of {len(self.times_us)} rounds far above the rest")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as long the first takes as the second: the median over rounds, and its 95 % interval."""

    value: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.value:.2f}x ({self.low:.2f} to {self.high:.2f})"


def ratio(first: Samples, second: Samples) -> Ratio:
    """`first` over `second`, taken round by round, so that drift of the machine cancels.

    The interval is a bootstrap of the median with a fixed seed: equal samples give equal intervals. Raises
    ValueError for samples of different runs (round counts differ).
    """
    if len(first.times_us) != len(second.times_us):
        raise ValueError(f"{first.name} and {second.name} come from different runs")
    each = [a / b for a, b in zip(first.times_us, second.times_us, strict=True)]
    draw = random.Random(0)
    medians = [statistics.median(draw.choices(each, k=len(each))) for _ in range(_RESAMPLES)]
    return Ratio(statistics.median(each), quantile(medians, 0.025), quantile(medians, 0.975), len(each))
