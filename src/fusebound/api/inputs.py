"""Seeded example inputs from shapes and types."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from fusebound.errors import UsageError
from fusebound.ir.dtypes import BY_SHORT, DTYPES
from fusebound.target.machine import require_memory
from fusebound.words import count

if TYPE_CHECKING:
    import torch

SEED = 0
SCALAR = "scalar"
_SIZES = re.compile(r"\d+(?:[,x]\d+)*")


def from_shapes(shapes: tuple[str, ...], dtypes: tuple[str, ...]) -> tuple[Any, ...]:
    """Tensors of the given shapes, in order: normal floats, 0 or 1 for integers and bools.

    One type serves all, or there is one for each; float32 by default. Raises UsageError (E105).
    """
    if len(dtypes) > 1 and len(dtypes) != len(shapes):
        raise UsageError(
            f"{count(len(dtypes), 'type')} for {count(len(shapes), 'shape')}",
            where="--dtype",
            hint="give one, or one each",
            code="E105",
        )
    kinds = dtypes * len(shapes) if len(dtypes) == 1 else dtypes or ("float32",) * len(shapes)
    return tuple(_made(s, d, SEED + i) for i, (s, d) in enumerate(zip(shapes, kinds, strict=True)))


def _made(shape: str, dtype: str, seed: int) -> torch.Tensor:
    sizes, kind = _shape(shape), _dtype(dtype)
    try:
        return random_tensor(sizes, kind, seed=seed)
    except UsageError as error:
        raise UsageError(error.what, where="--shape", code="E105") from None
    except (RuntimeError, TypeError, ValueError) as error:  # too large to count, or for the memory
        raise UsageError(
            f"there is no memory for the shape `{shape}`", where="--shape", code="E105"
        ) from error


def _shape(text: str) -> tuple[int, ...]:
    if text == SCALAR:
        return ()
    if not _SIZES.fullmatch(text):
        hint = "sizes are separated by commas: `--shape 8192,2048`"
        raise UsageError(f"cannot read the shape `{text}`", where="--shape", hint=hint, code="E105")
    return tuple(int(part) for part in re.split("[,x]", text))


def _dtype(text: str) -> str:
    name = text.removeprefix("torch.")
    if name in BY_SHORT:
        name = BY_SHORT[name].name
    if name not in DTYPES:
        hint = "types are " + ", ".join(DTYPES)
        raise UsageError(f"there is no type `{text}`", where="--dtype", hint=hint, code="E105")
    return name


def random_tensor(
    shape: tuple[int, ...], dtype: str, *, strides: tuple[int, ...] | None = None, seed: int = SEED
) -> torch.Tensor:
    """A seeded tensor of a type's long name; `strides` count elements and default to contiguous.

    Raises UsageError (E105) for more than this machine's memory.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    kind = getattr(torch, dtype)
    require_memory(math.prod(shape if strides is None else (span(shape, strides),)) * kind.itemsize)
    if strides is not None:
        return random_tensor((span(shape, strides),), dtype, seed=seed).as_strided(shape, strides)
    if kind.is_floating_point or kind.is_complex:
        return torch.randn(shape, generator=generator).to(kind)
    return torch.randint(0, 2, shape, generator=generator).to(kind)


def span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last that a strided tensor touches."""
    if not all(shape):
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
