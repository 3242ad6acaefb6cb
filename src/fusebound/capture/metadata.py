"""Operators that read only another tensor's shape or type, written so that they read no tensor for it.

A value that is asked for its metadata alone need not exist: it may live in the registers of a kernel. What the
framework runs must therefore name the shape and the type themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusebound.ir.builder import contiguous
from fusebound.ir.graph import Attr, Token, Value

_FILLS = {
    "aten.zeros_like.default": 0, "aten.new_zeros.default": 0,
    "aten.ones_like.default": 1, "aten.new_ones.default": 1,
}  # fmt: skip
_GIVEN = {"aten.full_like.default": 1, "aten.new_full.default": 2}

Written = tuple[str, list[Attr], list[tuple[str, Attr]]]
"""Target, arguments and keyword arguments of a framework call."""


def explicit(target: str, args: Sequence[Attr], kwargs: Sequence[tuple[str, Attr]], result: Value) -> Written:
    """The call as `to.dtype` or `full` where it was `type_as`, `zeros_like`, `new_ones`, …; else unchanged."""
    dtype = Token(f"torch.{result.dtype}")
    if target == "aten.type_as.default":
        return "aten.to.dtype", [args[0], dtype], []
    fill: Attr = _FILLS.get(target)
    if target in _GIVEN:
        fill = args[_GIVEN[target]]
    if fill is None or result.strides != contiguous(result.shape):  # `full` knows of no strides
        return target, list(args), list(kwargs)
    return "aten.full.default", [result.shape, fill], [("dtype", dtype)]
