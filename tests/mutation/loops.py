"""Faults of loops and of places in memory: bounds, tails, offsets, strides, and which memory is meant."""

# A statement's kind is checked where its number comes from; lambdas bind their own parameters.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportPrivateUsage=false
# ruff: noqa: B023

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.mutation.rewrite import Fault, each, with_axis

from fusebound.codegen.tile import Keep, Kernel, Load, Loop, Recall, Stmt, Store
from fusebound.ir.maps import Affine

Access = Load | Store | Keep | Recall


def faults(k: Kernel) -> Iterator[Fault]:
    """Every fault of this kind, at every site."""
    yield from _bounds(k)
    yield from _offsets(k)
    yield from _memory(k)


def _bounds(k: Kernel) -> Iterator[Fault]:
    def looped(lo: int, hi: int, s: Stmt) -> tuple[Stmt] | None:
        return (replace(s, lo=s.lo + lo, hi=s.hi + hi),) if isinstance(s, Loop) and not s.blocked else None

    def tail(s: Stmt) -> tuple[Stmt] | None:
        if not isinstance(s, Loop) or not s.vector or s.blocked or not (s.hi - s.lo) % k.lanes:
            return None
        return (replace(s, hi=s.hi - (s.hi - s.lo) % k.lanes),)

    yield from each(k, "tail dropped", tail)
    shifts = {"loop ends early": (0, -1), "loop starts late": (1, 0), "loop runs too far": (0, 1)}
    for what, (lo, hi) in shifts.items():
        yield from each(k, what, lambda s, lo=lo, hi=hi: looped(lo, hi, s))
        for n, nest in enumerate(k.nests):
            for i, a in enumerate(nest.axes):
                yield (
                    what, f"tiles of i{a.var} of nest {n}",
                    lambda k, n=n, i=i, lo=lo, hi=hi: with_axis(
                        k, n, i, lambda a: replace(a, lo=a.lo + lo, hi=a.hi + hi)
                    ),
                )  # fmt: skip


def _offsets(k: Kernel) -> Iterator[Fault]:
    """Off-by-one places, exchanged axes, wrong strides."""

    def moved(by: int, s: Stmt) -> tuple[Stmt] | None:
        return (replace(s, offset=s.offset + by),) if isinstance(s, Access) else None

    yield from each(k, "off by one", lambda s: moved(1, s))
    yield from each(k, "off by minus one", lambda s: moved(-1, s))

    def swapped(s: Stmt) -> tuple[Stmt] | None:
        if not isinstance(s, Access) or len(s.offset.terms) < 2:
            return None
        (v, c), (w, d), *rest = s.offset.terms
        return (replace(s, offset=Affine.of({v: d, w: c, **dict(rest)}, s.offset.const)),)

    yield from each(k, "axes exchanged", swapped)
    for which in range(2):
        for what, change in {
            "axis broadcast": lambda c: 0,
            "stride too small": lambda c: c - 1,
            "stride too large": lambda c: c + 1,
        }.items():

            def strided(s: Stmt, which: int = which, change=change) -> tuple[Stmt] | None:
                if not isinstance(s, Access) or len(s.offset.terms) <= which:
                    return None
                v, c = s.offset.terms[which]
                return (replace(s, offset=Affine.of({**dict(s.offset.terms), v: change(c)}, s.offset.const)),)

            yield from each(k, what, strided)

    def spread(s: Stmt) -> tuple[Stmt] | None:
        """An element that is one for all of the vector loop, read as if each lane had its own."""
        if not isinstance(s, Load) or s.dst not in k.vectors or k.vector in s.offset.vars:
            return None
        return (replace(s, offset=s.offset + Affine.var(k.vector)),)

    yield from each(k, "broadcast forgotten", spread)


def _memory(k: Kernel) -> Iterator[Fault]:
    """Another tensor, another type, another row of a gathered one; stores and scratch left out."""

    def elsewhere(s: Stmt) -> tuple[Stmt] | None:
        if not isinstance(s, (Load, Store)):
            return None
        p = k.params[s.param]
        others = [
            i for i, q in enumerate(k.params) if i != s.param and (q.written, q.dtype) == (p.written, p.dtype)
        ]
        return (replace(s, param=others[0]),) if others else None

    yield from each(k, "another tensor", elsewhere)
    twins = {
        "bfloat16": "float16",
        "float16": "bfloat16",
        "int8": "uint8",
        "float32": "int32",
        "float64": "int64",
    }

    def narrow(s: Stmt) -> tuple[Stmt] | None:
        if not isinstance(s, Load) or s.dtype not in ("bfloat16", "float16"):
            return None
        return (replace(s, dtype=twins[s.dtype]),)

    yield from each(k, "read as another type", narrow)
    yield from each(k, "index stride", lambda s: _gathered(s, stride=1))
    yield from each(k, "index bound", lambda s: _gathered(s, limit=-1))
    yield from each(k, "index bound too wide", lambda s: _gathered(s, limit=1))
    yield from each(k, "store skipped", lambda s: () if isinstance(s, Store) else None)
    yield from each(k, "scratch not written", lambda s: () if isinstance(s, Keep) else None)


def _gathered(s: Stmt, stride: int = 0, limit: int = 0) -> tuple[Stmt] | None:
    if not isinstance(s, Load) or s.index < 0:
        return None
    return (replace(s, stride=s.stride + stride, limit=s.limit + limit),)
