"""The layer norm of the second set with other ways to the mean and the deviation of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.mutation.second import Editor

from fusebound.codegen import tile
from fusebound.codegen.tile import Accumulate, Accumulator, Affine, Load, Loop, Pass, Stmt

N = 37
FIRST = 24
"""Where the row is cut in two by those who sum it in two parts."""

Stats = Callable[[Editor, Loop], tuple[int, int, tuple[Stmt, ...]]]
"""From the loop that loads a row to its mean, one over its deviation, and the statements that compute them."""


def with_stats(stats: Stats) -> Callable[[tile.Kernel], tile.Kernel]:
    """The kernel without scratch: statistics first, then each value computed again and normalized in their type."""

    def change(k: tile.Kernel) -> tile.Kernel:
        e = Editor(k)
        row = k.nests[0].body[-1]
        assert isinstance(row, Loop)
        first, *_, last = (s.body[0] for s in row.body if isinstance(s, Pass))
        assert isinstance(first, Loop) and isinstance(last, Loop)
        mean, scale, before = stats(e, first)
        scaled = last.body[1]
        assert isinstance(scaled, tile.Apply)
        centred = e.apply("sub", _value(e, first, e.types[mean]), mean)
        e.cast(e.apply("mul", centred, scale), "float32", dst=scaled.dst)
        final = replace(last, body=(*e.take(), *last.body[2:]))
        body = (*k.nests[0].body[:-1], replace(row, body=(*before, Pass((), (final,)))))
        nests = (replace(k.nests[0], body=body),)
        return replace(k, scratch=(), nests=nests, vectors=frozenset(e.vectors))

    return change


def in_chunks(weight: float) -> Stats:
    """Two parts, each with a mean and squares around it, combined; `weight` is that of the square of the difference
    of their means, n₁·n₂/n in truth (Chan et al. 1979)."""

    def stats(e: Editor, loop: Loop) -> tuple[int, int, tuple[Stmt, ...]]:
        sums = [e.sum("float64", "float64") for _ in range(2)]
        squares = [e.sum("float64", "float64") for _ in range(2)]
        parts = [replace(loop, hi=FIRST, copies=1), replace(loop, lo=FIRST, copies=1)]
        bodies = [_sweep(e, p, [(a, _value(e, p, "float64"))]) for p, a in zip(parts, sums, strict=True)]
        out: list[Stmt] = [Pass(tuple(sums), tuple(bodies))]
        means = [
            e.apply("div", e.finish(a), e.const(n, "float64"))
            for a, n in zip(sums, (FIRST, N - FIRST), strict=True)
        ]
        out += e.take()
        bodies = []
        for p, a, m in zip(parts, squares, means, strict=True):
            d = e.apply("sub", _value(e, p, "float64"), m)
            bodies.append(_sweep(e, p, [(a, e.apply("mul", d, d))]))
        out.append(Pass(tuple(squares), tuple(bodies)))
        delta = e.apply("sub", means[1], means[0])
        mean = e.apply("add", means[0], e.apply("mul", delta, e.const((N - FIRST) / N, "float64")))
        between = e.apply("mul", e.apply("mul", delta, delta), e.const(weight, "float64"))
        total = e.apply("add", e.apply("add", e.finish(squares[0]), e.finish(squares[1])), between)
        return mean, _scale(e, total), (*out, *e.take())

    return stats


def one_pass(dtype: str, *, shifted: bool) -> Stats:
    """The mean of the squares less the square of the mean, in `dtype`; `shifted` by the row's first value."""

    def stats(e: Editor, loop: Loop) -> tuple[int, int, tuple[Stmt, ...]]:
        plain, squared = (e.sum(dtype, dtype) for _ in range(2))
        shift = _first(e, loop, dtype) if shifted else e.const(0.0, dtype)
        out = e.take()
        d = e.apply("sub", _value(e, loop, dtype), shift)
        sweep = _sweep(e, loop, [(plain, d), (squared, e.apply("mul", d, d))])
        off = e.apply("div", e.finish(plain), e.const(N, dtype))
        over = e.apply("sub", e.finish(squared), e.apply("mul", e.apply("mul", off, off), e.const(N, dtype)))
        total = e.apply("maximum", e.const(0.0, dtype), over)
        mean = e.apply("add", shift, off)
        return mean, _scale(e, total), (*out, Pass((plain, squared), (sweep,)), *e.take())

    return stats


def backwards(e: Editor, loop: Loop) -> tuple[int, int, tuple[Stmt, ...]]:
    """Two passes that walk through the row from its end, around a mean that is rounded once."""
    plain, squared = e.sum("float32", "float64"), e.sum("float32", "float32")
    first = _sweep(e, loop, [(plain, _value(e, loop, "float32", mirror=True))])
    mean = e.cast(e.apply("div", e.finish(plain), e.const(N, "float64")), "float32")
    out = (Pass((plain,), (first,)), *e.take())
    d = e.apply("sub", _value(e, loop, "float32", mirror=True), mean)
    second = _sweep(e, loop, [(squared, e.apply("mul", d, d))])
    return mean, _scale(e, e.finish(squared)), (*out, Pass((squared,), (second,)), *e.take())


def _scale(e: Editor, squares: int) -> int:
    dtype = e.types[squares]
    variance = e.apply("div", squares, e.const(N, dtype))
    return e.apply("rsqrt", e.apply("add", variance, e.const(1e-5, dtype)))


def _loads(loop: Loop) -> Sequence[Stmt]:
    """What computes a row's value, up to its sum x + y."""
    return loop.body[:3]


def _value(e: Editor, loop: Loop, dtype: str, *, mirror: bool = False) -> int:
    v = loop.var

    def from_the_end(at: Affine) -> Affine:
        return at + Affine.var(v, -2 * at.coef(v), (N - 1) * at.coef(v))

    return e.cast(e.copy(_loads(loop), from_the_end if mirror else lambda at: at), dtype)


def _first(e: Editor, loop: Loop, dtype: str) -> int:
    """The row's first value, one for all lanes."""
    x, y, add = _loads(loop)
    assert isinstance(x, Load) and isinstance(y, Load) and isinstance(add, tile.Apply)
    numbers = [e.new("float32", vector=False) for _ in range(2)]
    for s, number in zip((x, y), numbers, strict=True):
        at = Affine(s.offset.const, tuple(t for t in s.offset.terms if t[0] != loop.var))
        e.written.append(replace(s, dst=number, offset=at))
    return e.cast(e.apply("add", *numbers), dtype)


def _sweep(e: Editor, loop: Loop, sums: Sequence[tuple[Accumulator, int]]) -> Loop:
    """A loop of what was written, and of sums over it."""
    adds = (Accumulate(a.id, number, Affine()) for a, number in sums)
    return replace(loop, body=(*e.take(), *adds))
