"""Figures as people read them. Everything here is total and returns plain text."""

from __future__ import annotations

from math import isfinite

_TIMES = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns"))
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def micros(us: float | None) -> str:
    """A time given in µs, with three significant digits: `4.12 ms`; `-` for one that was not measured."""
    if us is None:
        return "-"
    if us == 0 or not isfinite(us):
        return f"{us:g} µs"
    for scale, unit in _TIMES:
        if abs(us) >= scale:
            return f"{_three(us / scale)} {unit}"
    return f"{us * 1e3:.1f} ns" if abs(us) >= 5e-5 else "<0.1 ns"


def seconds(s: float) -> str:
    """A time given in seconds."""
    return micros(s * 1e6)


def size(n: int) -> str:
    """Bytes in decimal units: `201.3 MB`."""
    for scale, unit in _SIZES:
        if abs(n) >= scale:
            return f"{_three(n / scale)} {unit}"
    return f"{n} B"


def times(ratio: float) -> str:
    """A speed-up: `3.14x`, `118x`."""
    return f"{ratio:.2f}x" if ratio < 100 else f"{ratio:.0f}x"


def percent(fraction: float) -> str:
    """A share of 1."""
    return f"{100 * fraction:.0f} %"


def error(x: float) -> str:
    """An absolute error: two significant digits."""
    return "0" if x == 0 else f"{x:.1e}"


def _three(x: float) -> str:
    digits = 2 if abs(x) < 10 else 1 if abs(x) < 100 else 0
    return f"{x:.{digits}f}"
