"""Faults of reductions: what is taken in, how it is combined, what becomes of the sum."""

# A statement's kind is checked where its number comes from; lambdas bind their own parameters.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportPrivateUsage=false
# ruff: noqa: B023

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.mutation.rewrite import (
    Fault,
    aliased,
    each,
    exchanged,
    fresh,
    numbered,
    renamed,
    vectorized,
    words,
)

from fusebound.codegen.tile import Accumulate, Apply, Const, Finish, Kernel, Loop, Pass, Stmt, statements
from fusebound.ir.dtypes import DTYPES

KINDS = {
    "sum": ("amax", "prod"), "prod": ("sum",), "amax": ("amin", "sum"), "amin": ("amax",),
    "argmax": ("argmin",), "argmin": ("argmax",), "any": ("all",), "all": ("any",),
}  # fmt: skip


def faults(k: Kernel) -> Iterator[Fault]:
    """Every fault of this kind, at every site."""
    yield from _kinds(k)
    yield from _steps(k)
    yield from _filtered(k)
    yield from _one_pass(k)


def _kinds(k: Kernel) -> Iterator[Fault]:
    for at, s in numbered(k):
        if not isinstance(s, Pass):
            continue
        for i, a in enumerate(s.accumulators):
            for kind in KINDS[a.kind]:
                if "amax" in (kind, a.kind) and a.dtype != a.result:
                    continue
                yield (
                    "another reduction", f"{words(k, at, s)}: a{a.id} by {kind}",
                    lambda k, at=at, i=i, kind=kind: exchanged(k, at, lambda s: (_with_kind(s, i, kind),)),
                )  # fmt: skip


def _with_kind(s: Stmt, i: int, kind: str) -> Pass:
    assert isinstance(s, Pass)
    accs = tuple(replace(a, kind=kind) if j == i else a for j, a in enumerate(s.accumulators))
    return replace(s, accumulators=accs)


def _steps(k: Kernel) -> Iterator[Fault]:
    yield from each(k, "nothing taken in", lambda s: () if isinstance(s, Accumulate) else None)
    yield from each(k, "taken in twice", lambda s: (s, s) if isinstance(s, Accumulate) else None)
    positions = {
        a.id
        for _, p in numbered(k)
        if isinstance(p, Pass)
        for a in p.accumulators
        if a.kind in ("argmax", "argmin")
    }
    yield from each(
        k, "position off by one",
        lambda s: (replace(s, where=s.where + 1),) if isinstance(s, Accumulate) and s.acc in positions else None,
    )  # fmt: skip
    yield from each(
        k, "position reversed",
        lambda s: (replace(s, where=s.where * -1 + 64),) if isinstance(s, Accumulate) and s.acc in positions else None,
    )  # fmt: skip
    results = {a.id: a.result for _, p in numbered(k) if isinstance(p, Pass) for a in p.accumulators}

    def other(s: Stmt) -> tuple[Stmt] | None:
        if not isinstance(s, Finish):
            return None
        same = [a for a in results if a != s.acc and results[a] == results[s.acc] and a < s.acc]
        return (replace(s, acc=same[0]),) if same else None

    yield from each(k, "another accumulator", other)


def _filtered(k: Kernel) -> Iterator[Fault]:
    """Elements that are NaN, or infinite, are left out."""
    for at, s in numbered(k):
        if not isinstance(s, Accumulate):
            continue
        kind, dtype = next(
            (a.kind, a.dtype)
            for _, p in numbered(k)
            if isinstance(p, Pass)
            for a in p.accumulators
            if a.id == s.acc
        )
        if not DTYPES[dtype].is_float:
            continue
        neutral = {"sum": 0.0, "prod": 1.0, "amin": float("inf"), "argmin": float("inf")}.get(
            kind, float("-inf")
        )
        for what, op in (("NaN left out", "isnan"), ("infinities left out", "isinf")):
            yield (
                what, words(k, at, s),
                lambda k, at=at, op=op, dtype=dtype, neutral=neutral: _without(k, at, op, dtype, neutral),
            )  # fmt: skip


def _without(k: Kernel, at: int, op: str, dtype: str, neutral: float) -> Kernel:
    t = fresh(k)

    def new(s: Stmt) -> tuple[Stmt, ...]:
        assert isinstance(s, Accumulate)
        return (
            Const(t, neutral, dtype), Apply(t + 1, op, (s.src,), "bool", (dtype,)),
            Apply(t + 2, "where", (t + 1, t, s.src), dtype, ("bool", dtype, dtype)), replace(s, src=t + 2),
        )  # fmt: skip

    return vectorized(exchanged(k, at, new), t, t + 1, t + 2)


def _one_pass(k: Kernel) -> Iterator[Fault]:
    """Σ(x - m)² computed as Σx² - n·m², which cancels at a large mean."""
    for at, s in numbered(k):
        if not isinstance(s, Pass) or len(s.accumulators) != 1:
            continue
        inner = list(statements(s.body))
        taken = next((a for a in inner if isinstance(a, Accumulate)), None)
        square = next((q for q in inner if isinstance(q, Apply) and taken and q.dst == taken.src), None)
        if square is None or square.op != "mul" or square.args[0] != square.args[1]:
            continue
        centred = next((c for c in inner if isinstance(c, Apply) and c.dst == square.args[0]), None)
        if centred is not None and centred.op == "sub" and centred.args[1] not in k.vectors:
            count = sum(x.hi - x.lo for x in inner if isinstance(x, Loop))
            place = next(i for i, x in numbered(k) if x == centred)
            yield (
                "one-pass variance", words(k, at, s),
                lambda k, c=centred, place=place, acc=s.accumulators[0].id, n=count: _uncentred(k, place, c, acc, n),
            )  # fmt: skip


def _uncentred(k: Kernel, place: int, centred: Apply, acc: int, count: int) -> Kernel:
    k = aliased(k, place, lambda s: s.args[0])
    at, finish = next((i, s) for i, s in numbered(k) if isinstance(s, Finish) and s.acc == acc)
    mean, t, d = centred.args[1], fresh(k), centred.dtype
    k = renamed(k, finish.dst, t + 3, after=at)
    return exchanged(
        k, at,
        lambda s: (
            s, Const(t, float(count), d), Apply(t + 1, "mul", (mean, mean), d, (d, d)),
            Apply(t + 2, "mul", (t + 1, t), d, (d, d)), Apply(t + 3, "sub", (finish.dst, t + 2), d, (d, d)),
        ),
    )  # fmt: skip
