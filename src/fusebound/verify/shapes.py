"""A function rebuilt and verified at boundary sizes and in other layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from fusebound.verify.call import Capture
from fusebound.verify.check import verify
from fusebound.verify.inputs import PLAIN
from fusebound.verify.layouts import boundary_variants
from fusebound.verify.result import VerifyResult

Build = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Callable[..., object], Capture]]
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
    build: Build, fn: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, *,
    numerics: str = "accurate", seed: int = 0,
) -> tuple[ShapeCheck, ...]:  # fmt: skip
    """Verify `fn` at sizes round a vector and a tile, at size 0 and 1, transposed, strided and expanded.

    `build` is called with each variant of the arguments, nested and keyword ones too; variants that eager refuses
    are listed, not built. Whatever `build` raises for a variant that eager runs is raised.
    """
    leaves, spec = tree_flatten((tuple(args), dict(kwargs or {})))
    return tuple(
        _check(build, fn, label, tree_unflatten(list(variant), spec), numerics, seed)
        for label, variant in boundary_variants(leaves)
    )


def _check(
    build: Build, fn: Callable[..., object], label: str, call: tuple[tuple[Any, ...], dict[str, Any]],
    numerics: str, seed: int,
) -> ShapeCheck:  # fmt: skip
    args, kwargs = call
    try:
        with torch.no_grad():
            fn(*_copies(args), **_copies(kwargs))
    except Exception as refusal:
        text = (str(refusal) or type(refusal).__name__).splitlines()[0]
        return ShapeCheck(label, None, text)
    exe, captured = build(args, kwargs)
    return ShapeCheck(label, verify(exe, captured, args, kwargs, numerics=numerics, sets=PLAIN, seed=seed))


def _copies(tree: Any) -> Any:
    """A trial run must not change the arguments that are verified."""
    return tree_map(lambda a: a.clone() if isinstance(a, torch.Tensor) else a, tree)
