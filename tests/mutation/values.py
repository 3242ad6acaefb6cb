"""Faults of what is computed: operands, primitives, constants, roundings, conversions, random numbers."""

# A statement's kind is checked where its number comes from; lambdas bind their own parameters.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportPrivateUsage=false
# ruff: noqa: B023

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from tests.mutation.rewrite import (
    Fault,
    aliased,
    dtype_of,
    each,
    exchanged,
    fresh,
    numbered,
    vectorized,
    words,
)

from fusebound.codegen.tile import Accumulate, Apply, Const, Draw, Keep, Kernel, Stmt, Store
from fusebound.ir.dtypes import DTYPES

OTHER = {
    "add": ("sub",), "sub": ("add",), "mul": ("add", "div"), "div": ("mul",),
    "maximum": ("minimum",), "minimum": ("maximum",),
    "lt": ("le", "gt"), "le": ("lt", "ge"), "gt": ("ge", "lt"), "ge": ("gt", "le"), "eq": ("ne",), "ne": ("eq",),
    "and": ("or",), "or": ("and",), "xor": ("or",), "shr": ("shl",),
    "exp": ("exp2", "expm1"), "log": ("log2", "log1p"), "sqrt": ("rsqrt",), "rsqrt": ("sqrt", "reciprocal"),
    "tanh": ("sigmoid", "erf"), "sigmoid": ("tanh",), "erf": ("tanh",), "abs": ("neg",), "neg": ("abs",),
    "round": ("trunc", "floor"), "floor_div": ("trunc_div",), "rem": ("fmod",),
}  # fmt: skip
"""Primitives that are easily taken for one another."""

ORDERED = (
    "sub",
    "div",
    "lt",
    "le",
    "gt",
    "ge",
    "floor_div",
    "trunc_div",
    "rem",
    "fmod",
    "shr",
    "shl",
    "maximum",
    "minimum",
)


def faults(k: Kernel) -> Iterator[Fault]:
    """Every fault of this kind, at every site."""
    yield from _operands(k)
    yield from _primitives(k)
    yield from _special(k)
    yield from _constants(k)
    yield from _roundings(k)
    yield from _draws(k)


def _operands(k: Kernel) -> Iterator[Fault]:
    def swapped(s: Stmt) -> tuple[Stmt] | None:
        if not isinstance(s, Apply):
            return None
        if s.op in ORDERED and s.args[0] != s.args[1]:
            return (replace(s, args=s.args[::-1]),)
        if s.op == "where":
            return (replace(s, args=(s.args[0], s.args[2], s.args[1])),)
        return (replace(s, args=(s.args[2], s.args[1], s.args[0])),) if s.op == "fma" else None

    yield from each(k, "operands swapped", swapped)
    for at, s in numbered(k):
        if not isinstance(s, Apply):
            continue
        for i in range(len(s.args)):
            if s.arg_dtypes[i] == s.dtype and s.op != "cast":
                yield (
                    f"only operand {i} kept",
                    words(k, at, s),
                    lambda k, at=at, i=i: aliased(k, at, lambda s: s.args[i]),
                )


def _primitives(k: Kernel) -> Iterator[Fault]:
    def other(s: Stmt, i: int) -> tuple[Stmt] | None:
        if not isinstance(s, Apply) or len(OTHER.get(s.op, ())) <= i:
            return None
        op = OTHER[s.op][i]
        floating = DTYPES[s.arg_dtypes[0]].is_float
        return (replace(s, op=op),) if floating or op not in ("div", "rsqrt", "reciprocal") else None

    for i in range(2):
        yield from each(k, "another primitive", lambda s, i=i: other(s, i))


def _special(k: Kernel) -> Iterator[Fault]:
    """Maxima and minima that lose a NaN, in either order of the operands."""
    for at, s in numbered(k):
        if isinstance(s, Apply) and s.op in ("maximum", "minimum") and DTYPES[s.dtype].is_float:
            for what, flip in (
                ("NaN of the first operand lost", False),
                ("NaN of the second operand lost", True),
            ):
                yield what, words(k, at, s), lambda k, at=at, flip=flip: _chosen(k, at, flip)
    for at, s in numbered(k):
        if isinstance(s, (Store, Keep, Accumulate)) and DTYPES[dtype_of(k, s.src)].is_float:
            yield "zeros lose their sign", words(k, at, s), lambda k, at=at: _plus_zero(k, at)
            yield "subnormals flushed", words(k, at, s), lambda k, at=at: _flushed(k, at)


def _chosen(k: Kernel, at: int, flip: bool) -> Kernel:
    """max(a, b) as `a > b ? a : b`, or with `flip` as `b > a ? b : a`."""
    t = fresh(k)

    def new(s: Stmt) -> tuple[Stmt, ...]:
        assert isinstance(s, Apply)
        a, b = s.args[::-1] if flip else s.args
        test = Apply(t, "gt" if s.op == "maximum" else "lt", (a, b), "bool", s.arg_dtypes)
        return test, replace(s, op="where", args=(t, a, b), arg_dtypes=("bool", s.dtype, s.dtype))

    s = next(s for i, s in numbered(k) if i == at)
    changed = exchanged(k, at, new)
    return vectorized(changed, t) if s.dst in k.vectors else changed


def _before(k: Kernel, at: int, made: list[Stmt], result: int) -> Kernel:
    """The statement at `at` reads `result`, which the statements before it make."""
    s = next(s for i, s in numbered(k) if i == at)
    src: int = s.src
    changed = exchanged(k, at, lambda s: (*made, replace(s, src=result)))  # type: ignore[call-arg]
    return vectorized(changed, *(m.dst for m in made)) if src in k.vectors else changed


def _plus_zero(k: Kernel, at: int) -> Kernel:
    s = next(s for i, s in numbered(k) if i == at)
    src, t = s.src, fresh(k)
    d = dtype_of(k, src)
    return _before(k, at, [Const(t, 0.0, d), Apply(t + 1, "add", (src, t), d, (d, d))], t + 1)


def _flushed(k: Kernel, at: int) -> Kernel:
    s = next(s for i, s in numbered(k) if i == at)
    src, t = s.src, fresh(k)
    d = dtype_of(k, src)
    least = {"float64": 2.0**-1022, "float16": 2.0**-14}.get(d, 2.0**-126)
    made: list[Stmt] = [
        Const(t, least, d), Const(t + 1, 0.0, d), Apply(t + 2, "abs", (src,), d, (d,)),
        Apply(t + 3, "lt", (t + 2, t), "bool", (d, d)), Apply(t + 4, "where", (t + 3, t + 1, src), d, ("bool", d, d)),
    ]  # fmt: skip
    return _before(k, at, made, t + 4)


def _constants(k: Kernel) -> Iterator[Fault]:
    def changed(s: Stmt, how: str) -> tuple[Stmt] | None:
        if not isinstance(s, Const) or isinstance(s.value, bool):
            return None
        value = _other_value(s.value, s.dtype, how)
        return None if value is None or value == s.value else (replace(s, value=value),)

    for how in ("an ULP", "doubled", "negated", "zero", "one less"):
        yield from each(k, f"constant {how}", lambda s, how=how: changed(s, how))


def _other_value(v: float | int, dtype: str, how: str) -> float | int | None:
    match how:
        case "an ULP":
            if not DTYPES[dtype].is_float:
                return None
            return (
                float(np.nextafter(v, np.inf))
                if dtype == "float64"
                else float(np.nextafter(np.float32(v), np.float32(np.inf)))
            )
        case "doubled":
            return 2 * v
        case "negated":
            return -v if v else None
        case "zero":
            return type(v)(0)
        case _:
            return v - 1 if not DTYPES[dtype].is_float or (v > 1 and v == math.floor(v)) else None


def _roundings(k: Kernel) -> Iterator[Fault]:
    narrow = ("bfloat16", "float16")

    def toggled(s: Stmt) -> tuple[Stmt] | None:
        if not isinstance(s, Apply) or s.dtype not in narrow or s.op == "cast":
            return None
        return (replace(s, rounds=not s.rounds),)

    yield from each(k, "rounding added or left out", toggled)
    for at, s in numbered(k):
        if not isinstance(s, Apply) or s.op != "cast":
            continue
        source, target = (DTYPES[d] for d in (s.arg_dtypes[0], s.dtype))
        if source.is_float and target.is_int:
            for op in ("round", "floor", "ceil"):
                yield f"converted by {op}", words(k, at, s), lambda k, at=at, op=op: _converted(k, at, op)
            yield "converted unsigned", words(k, at, s), lambda k, at=at: _through(k, at, "uint8")
        if (source.is_float and target.is_float and target.itemsize < source.itemsize) or s.dtype in narrow:
            yield "conversion left out", words(k, at, s), lambda k, at=at: aliased(k, at, lambda s: s.args[0])
        if source.is_float and target.is_float and "float32" in (s.dtype, s.arg_dtypes[0]):
            yield "converted by float16", words(k, at, s), lambda k, at=at: _through(k, at, "float16")
        if source.kind == "int":
            yield "converted by int8", words(k, at, s), lambda k, at=at: _through(k, at, "int8")


def _converted(k: Kernel, at: int, op: str) -> Kernel:
    """A conversion that rounds otherwise first."""
    t = fresh(k)

    def new(s: Stmt) -> tuple[Stmt, ...]:
        assert isinstance(s, Apply)
        d = s.arg_dtypes[0]
        return Apply(t, op, s.args, d, (d,)), replace(s, args=(t,))

    return vectorized(exchanged(k, at, new), t)


def _through(k: Kernel, at: int, dtype: str) -> Kernel:
    """A conversion by way of another type."""
    t = fresh(k)
    s = next(s for i, s in numbered(k) if i == at)

    def new(s: Stmt) -> tuple[Stmt, ...]:
        assert isinstance(s, Apply)
        return replace(s, dst=t, dtype=dtype), replace(s, args=(t,), arg_dtypes=(dtype,))

    changed = exchanged(k, at, new)
    return vectorized(changed, t) if s.dst in k.vectors else changed


def _draws(k: Kernel) -> Iterator[Fault]:
    yield from each(
        k, "another draw", lambda s: (replace(s, draw=s.draw + 1),) if isinstance(s, Draw) else None
    )
    yield from each(
        k, "another word", lambda s: (replace(s, word=3 - s.word),) if isinstance(s, Draw) else None
    )
    yield from each(
        k, "another counter", lambda s: (replace(s, expr=s.expr + 1),) if isinstance(s, Draw) else None
    )
    yield from each(
        k, "counter strided", lambda s: (replace(s, expr=s.expr * 2),) if isinstance(s, Draw) else None
    )
