"""Elements that lie a few apart: whole vectors are moved and shuffled, which is faster than one lane at a time.

The real parts of complex pairs, the halves that a rotary embedding interleaves, the colours of a pixel.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.llvm_types import elem, lanes, vec

WIDEST = 4
"""Distance between elements up to which vectors are shuffled: beyond it more is moved than gathered."""


def is_few(stride: int) -> bool:
    """Whether elements so far apart are moved by whole vectors."""
    return 1 < stride <= WIDEST


def load(fn: Fn, element: str, place: Reg, stride: int, width: int, *, align: int) -> Reg:
    """The elements at `place`, `place + stride`, …; no memory behind the last of them is read."""
    type = vec(element, width)
    found: Reg | None = None
    for k in range(stride):
        mask = _mask(fn, [k * width + j <= (width - 1) * stride for j in range(width)])
        part = fn.load(type, fn.gep(place, element, k * width), align=align, mask=mask)
        # Lane i is element i * stride of what is loaded.
        inside = [width + i * stride % width if i * stride // width == k else i for i in range(width)]
        found = fn.shuffle(part if found is None else found, part, inside)
    assert found is not None
    return found


def store(fn: Fn, value: Reg, place: Reg, stride: int, *, align: int) -> None:
    """Store the lanes at `place`, `place + stride`, …; no memory between them is written."""
    width, element = lanes(value.type), elem(value.type)
    for k in range(stride):
        at = range(k * width, k * width + width)
        spread = fn.shuffle(value, value, [i // stride for i in at])
        mask = _mask(fn, [i % stride == 0 for i in at])
        fn.store(spread, fn.gep(place, element, k * width), align=align, mask=mask)


def _mask(fn: Fn, active: Sequence[bool]) -> Reg | None:
    """The lanes that are active, as a constant; None for all."""
    if all(active):
        return None
    bits = ", ".join(f"i1 {str(a).lower()}" for a in active)
    return Reg(f"<{bits}>", vec("i1", len(active)))
