"""τ: the user's own bound on |fused − eager|."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusebound.errors import UsageError
from fusebound.ir.dtypes import DTYPES


@dataclass(frozen=True, slots=True)
class Tau:
    """At every element |fused − eager| ≤ max(absolute, relative · |eager|, ulp · ULP of eager).

    The largest of the three counts, as in Python's `math.isclose`; what is not given is 0, so that `Tau()` asks for
    equal numbers. `absolute` is in the output's unit. Raises UsageError for negative numbers, NaN and infinity.
    """

    absolute: float = 0.0
    relative: float = 0.0
    ulp: float = 0.0

    def __post_init__(self) -> None:
        for kind, x in self.given.items():
            if not (math.isfinite(x) and x >= 0):
                raise UsageError(f"{x!r} is no bound", where=f"tau, {kind}", hint="a finite number from 0 up")

    @staticmethod
    def of(x: Tau | float | Mapping[str, float] | None) -> Tau | None:
        """τ from what a user gives: a number is absolute, a mapping names the kinds.

        Raises UsageError for anything else.
        """
        if x is None or isinstance(x, Tau):
            return x
        named = x if isinstance(x, Mapping) else {"absolute": x}
        if named and named.keys() <= set(KINDS) and all(map(_is_number, named.values())):
            with contextlib.suppress(OverflowError):
                return Tau(**{k: float(v) for k, v in named.items()})
        raise UsageError(
            f"{x!r} is no bound", where="tau", hint=f"a number, or numbers for {', '.join(KINDS)}"
        )

    @staticmethod
    def parse(text: str) -> Tau:
        """τ as written on a command line: `1e-6`, or `relative=1e-5,ulp=4`. Raises UsageError."""
        try:
            if "=" not in text:
                return Tau(float(text))
            pairs = [part.split("=", 1) for part in text.split(",")]
            named = {k.strip(): float(v) for k, v in pairs}
        except ValueError:
            raise UsageError(
                f"{text!r} is no bound", where="tau", hint="1e-6 or relative=1e-5,ulp=4"
            ) from None
        tau = Tau.of(named)
        assert tau is not None
        return tau

    @property
    def given(self) -> dict[str, float]:
        """The kinds that bound anything; `absolute` where none does."""
        every = {k: getattr(self, k) for k in KINDS}
        return {k: x for k, x in every.items() if x != 0} or {"absolute": 0.0}

    def __str__(self) -> str:
        return ", ".join(f"{x:g}" if k == "absolute" else f"{k} {x:g}" for k, x in self.given.items())

    def allowed(self, eager: NDArray[Any], unit: NDArray[Any]) -> NDArray[Any]:
        """The largest difference at every element, from eager's values and one ULP at each."""
        return np.maximum(np.maximum(self.absolute, self.relative * np.abs(eager)), self.ulp * unit)

    def loosened(self, d: Difference) -> str:
        """The smallest τ of each given kind that alone would allow a difference."""
        return " or ".join(
            f"tau ≥ {getattr(d, k):.3g}" + (f" ({k})" if k != "absolute" else "") for k in self.given
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """Maxima of |fused − eager|: in the output's unit, as a share of |eager|, in ULP of eager, and as a share
    of what τ allows (0 without a τ)."""

    absolute: float = 0.0
    relative: float = 0.0
    ulp: float = 0.0
    excess: float = 0.0

    @staticmethod
    def between(eager: NDArray[Any], fused: NDArray[Any], dtype: str, tau: Tau | None) -> Difference:
        """Of two arrays of finite numbers, which stand for values of type `dtype`."""
        distance = np.abs(fused - eager)
        unit = ulp(eager, dtype)
        return Difference(
            _largest(distance, 1.0), _largest(distance, np.abs(eager)), _largest(distance, unit),
            _largest(distance, tau.allowed(eager, unit)) if tau is not None else 0.0,
        )  # fmt: skip

    def or_larger(self, other: Difference) -> Difference:
        """The larger of both, kind by kind."""
        return Difference(*(max(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)))


def ulp(values: NDArray[Any] | float, dtype: str) -> NDArray[Any]:
    """Unit in the last place of a type at finite numbers: its distance of neighbours, which near zero, and at zero
    itself, is that of the subnormal ones."""
    kind = DTYPES[dtype]
    return np.ldexp(kind.ulp, np.frexp(np.maximum(np.abs(values), kind.smallest_normal))[1] - 1)


def _largest(distance: NDArray[Any], unit: NDArray[Any] | float) -> float:
    """max(distance / unit), where nothing is no distance in any unit."""
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(distance == 0, 0.0, distance / unit)
    return float(np.max(shares)) if shares.size else 0.0


KINDS = tuple(f.name for f in fields(Tau))


def _is_number(x: object) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool)
