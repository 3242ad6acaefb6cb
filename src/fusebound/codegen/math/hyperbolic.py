"""Hyperbolic functions and tan of float64: the library's, repaired where it overflows or underflows early.

SLEEF's sinh and cosh overflow from 709.8 on instead of 710.5, its asinh and acosh where x² does, and its tan
and asinh are not exact in the subnormals. The repaired lanes are within 3 ULP.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.math import sleef
from fusebound.codegen.math.basic import copysign, fabs

_LAST_EXP = 709.0
_LAST_SQUARE = 2.0**500
_LINEAR = 2.0**-30


def tan(fn: Fn, x: Reg) -> Reg:
    """Tangent of radians."""
    return _linear_near_zero(fn, x, sleef.call(fn, "tan", x))


def sinh(fn: Fn, x: Reg) -> Reg:
    """Hyperbolic sine."""
    return _repaired(fn, "sinh", x, _LAST_EXP, lambda size: copysign(fn, _half_exp(fn, size), x))


def cosh(fn: Fn, x: Reg) -> Reg:
    """Hyperbolic cosine."""
    return _repaired(fn, "cosh", x, _LAST_EXP, lambda size: _half_exp(fn, size))


def asinh(fn: Fn, x: Reg) -> Reg:
    """Inverse hyperbolic sine."""
    value = _repaired(fn, "asinh", x, _LAST_SQUARE, lambda size: copysign(fn, _log_twice(fn, size), x))
    return _linear_near_zero(fn, x, value)


def acosh(fn: Fn, x: Reg) -> Reg:
    """Inverse hyperbolic cosine; NaN below 1."""
    below = fn.like(math.nan, x)

    def large(size: Reg) -> Reg:
        return fn.select(fn.fcmp("ogt", x, fn.like(0.0, x)), _log_twice(fn, size), below)

    return _repaired(fn, "acosh", x, _LAST_SQUARE, large)


def _half_exp(fn: Fn, size: Reg) -> Reg:
    """e^size / 2, which may be finite where e^size is not."""
    root = sleef.call(fn, "exp", fn.op("fmul", size, fn.like(0.5, size)))
    return fn.op("fmul", fn.op("fmul", root, fn.like(0.5, root)), root)


def _log_twice(fn: Fn, size: Reg) -> Reg:
    """log(2 · size)."""
    return fn.op("fadd", sleef.call(fn, "log", size), fn.like(math.log(2), size))


def _repaired(fn: Fn, name: str, x: Reg, last: float, large: Callable[[Reg], Reg]) -> Reg:
    """The library's function, and `large` of |x| in lanes beyond `last`; one branch for the whole vector."""
    value = sleef.call(fn, name, x)
    size = fabs(fn, x)
    beyond = fn.fcmp("ogt", size, fn.like(last, x))
    with fn.when(fn.any(beyond), keep=(value,)) as arm:
        arm.update(fn.select(beyond, large(size), value))
    return arm.results[0]


def _linear_near_zero(fn: Fn, x: Reg, value: Reg) -> Reg:
    """x itself where the function's cubic term is below half an ULP."""
    return fn.select(fn.fcmp("olt", fabs(fn, x), fn.like(_LINEAR, x)), x, value)
