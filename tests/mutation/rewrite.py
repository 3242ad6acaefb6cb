"""Statements of a tile program, found and exchanged one at a time."""

# A statement's kind is checked where its number comes from; lambdas bind their own parameters.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false, reportPrivateUsage=false
# ruff: noqa: B023

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace

from fusebound.codegen import tile
from fusebound.codegen.tile import Apply, Axis, Kernel, Loop, Pass, Stmt

Edit = Callable[[Kernel], Kernel]
"""A pure change of a tile program."""

Fault = tuple[str, str, Edit]
"""What is done, where (in words), and the change."""


def numbered(k: Kernel) -> Iterator[tuple[int, Stmt]]:
    """Every statement of all nests in order, with its number; a loop comes before its body."""
    yield from enumerate(s for n in k.nests for s in tile.statements(n.body))


def words(k: Kernel, at: int, s: Stmt) -> str:
    """A statement in one line: its number, and its text without the comment."""
    match s:
        case Loop():
            return f"{at}: for i{s.var} in {s.lo}:{s.hi}"
        case Pass():
            return f"{at}: pass {', '.join(f'a{a.id}' for a in s.accumulators)}"
        case _:
            return f"{at}: {tile._line(s, k).split('  #')[0]}"


def exchanged(k: Kernel, at: int, new: Callable[[Stmt], Sequence[Stmt]]) -> Kernel:
    """The program with statement number `at` replaced by the statements that `new` makes of it."""
    counter = iter(range(1 << 30))

    def walk(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        found: list[Stmt] = []
        for s in body:
            here = next(counter)
            if isinstance(s, (Loop, Pass)):
                s = replace(s, body=walk(s.body))
            found += new(s) if here == at else (s,)
        return tuple(found)

    return replace(k, nests=tuple(replace(n, body=walk(n.body)) for n in k.nests))


def each(k: Kernel, what: str, change: Callable[[Stmt], Sequence[Stmt] | None]) -> Iterator[Fault]:
    """The fault `what` at every statement for which `change` returns other statements."""
    for at, s in numbered(k):
        new = change(s)
        if new is not None:
            yield what, words(k, at, s), lambda k, at=at: exchanged(k, at, lambda s: change(s) or ())


def aliased(k: Kernel, at: int, by: Callable[[Apply], int]) -> Kernel:
    """The program without the primitive at `at`: what read its result reads the result `by(it)` instead."""
    s = next(s for i, s in numbered(k) if i == at)
    assert isinstance(s, Apply)
    return renamed(exchanged(k, at, lambda _: ()), s.dst, by(s))


def renamed(k: Kernel, old: int, new: int, after: int = -1) -> Kernel:
    """The program with every read of result `old` in statements numbered above `after` reading `new`."""
    counter = iter(range(1 << 30))

    def walk(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        return tuple(one(s, next(counter)) for s in body)

    def one(s: Stmt, here: int) -> Stmt:
        if isinstance(s, (Loop, Pass)):
            return replace(s, body=walk(s.body))
        return _reading(s, old, new) if here > after else s

    return replace(k, nests=tuple(replace(n, body=walk(n.body)) for n in k.nests))


def _reading(s: Stmt, old: int, new: int) -> Stmt:
    if isinstance(s, Apply):
        return replace(s, args=tuple(new if a == old else a for a in s.args))
    names = {f.name for f in fields(s)}
    read = [n for n in ("src", "index", "seed") if n in names and getattr(s, n) == old]
    return replace(s, **dict.fromkeys(read, new)) if read else s  # type: ignore[arg-type]


def fresh(k: Kernel) -> int:
    """A result number that the program does not use."""
    return 1 + max((getattr(s, "dst", 0) for _, s in numbered(k)), default=0)


def vectorized(k: Kernel, *results: int) -> Kernel:
    """The program in which these results have a value for every lane."""
    return replace(k, vectors=k.vectors | set(results))


def with_axis(k: Kernel, nest: int, axis: int, change: Callable[[Axis], Axis]) -> Kernel:
    """The program with one coordinate of one nest's tiles changed."""
    n = k.nests[nest]
    axes = tuple(change(a) if i == axis else a for i, a in enumerate(n.axes))
    return replace(k, nests=(*k.nests[:nest], replace(n, axes=axes), *k.nests[nest + 1 :]))


def dtype_of(k: Kernel, result: int) -> str:
    """The element type of a result."""
    for _, s in numbered(k):
        if getattr(s, "dst", None) == result:
            match s:
                case tile.Finish():
                    return next(
                        a.result
                        for _, p in numbered(k)
                        if isinstance(p, Pass)
                        for a in p.accumulators
                        if a.id == s.acc
                    )
                case tile.Draw():
                    return "int32"
                case _:
                    return s.dtype
    raise KeyError(result)
