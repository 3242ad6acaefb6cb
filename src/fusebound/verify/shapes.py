"""A function rebuilt and verified at boundary sizes and in other layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusebound.verify.call import Capture
from fusebound.verify.check import verify
from fusebound.verify.inputs import PLAIN, boundary_variants
from fusebound.verify.result import VerifyResult

Build = Callable[[tuple[Any, ...]], tuple[Callable[..., object], Capture]]
"""Captures the function for the arguments and builds it: (executable, captured)."""


@dataclass(frozen=True, slots=True)
class ShapeCheck:
    """One variant: what was found, or None with the reason why eager cannot run it either."""

    variant: str
    result: VerifyResult | None
    refused: str = ""

    @property
    def ok(self) -> bool:
        return self.result is None or self.result.ok


def verify_shapes(
    build: Build, fn: Callable[..., object], args: Sequence[Any], *, numerics: str = "accurate", seed: int = 0
) -> tuple[ShapeCheck, ...]:
    """Verify `fn` at sizes round a vector and a tile, at size 0 and 1, transposed, strided and expanded.

    `build` is called with each variant of `args`; variants that eager refuses are listed, not built. Whatever
    `build` raises for a variant that eager runs is raised.
    """
    return tuple(
        _check(build, fn, label, variant, numerics, seed) for label, variant in boundary_variants(args)
    )


def _check(
    build: Build, fn: Callable[..., object], label: str, args: tuple[Any, ...], numerics: str, seed: int
) -> ShapeCheck:
    try:
        with torch.no_grad():
            fn(*_copies(args))
    except Exception as refusal:
        text = (str(refusal) or type(refusal).__name__).splitlines()[0]
        return ShapeCheck(label, None, text)
    exe, captured = build(args)
    return ShapeCheck(label, verify(exe, captured, args, numerics=numerics, sets=PLAIN, seed=seed))


def _copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """A trial run must not change the arguments that are verified."""
    return tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)
