"""Correct variants of a program's order: loops, tiles, statements, trees of sums, scratch and stores."""

# A statement's kind is checked where its number comes from; lambdas bind their own parameters.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportPrivateUsage=false
# ruff: noqa: B023

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import pairwise

from tests.mutation.rewrite import Fault, dtype_of, each, exchanged, fresh, numbered, vectorized, words

from fusebound.codegen.tile import (
    Accumulate,
    Apply,
    Const,
    Iota,
    Keep,
    Kernel,
    Load,
    Loop,
    Nest,
    Pass,
    Recall,
    Stmt,
    Store,
    statements,
)
from fusebound.ir.dtypes import DTYPES
from fusebound.ir.maps import Affine

PURE = (Load, Apply, Const, Iota, Recall)
LEAST = {"amax": float("-inf"), "amin": float("inf"), "prod": 1.0, "sum": 0.0}


def orders(k: Kernel) -> Iterator[Fault]:
    """Every variant of this kind, at every site."""
    yield from _loops(k)
    yield from _tiles(k)
    yield from _statements(k)
    yield from _memory(k)
    yield from _reductions(k)


def _inner(s: Loop) -> bool:
    return not any(isinstance(x, (Loop, Pass)) for x in s.body)


def _loops(k: Kernel) -> Iterator[Fault]:
    for copies in (1, 2, 4, 8):
        yield from each(
            k, "another number of accumulators",
            lambda s, c=copies: (replace(s, copies=c),)
            if isinstance(s, Loop) and s.vector and _inner(s) and s.copies != c else None,
        )  # fmt: skip
    for part in (1, 2, 3):

        def cut(s: Stmt, part: int = part) -> tuple[Stmt, ...] | None:
            if not isinstance(s, Loop) or s.blocked or s.hi - s.lo < 4:
                return None
            at = s.lo + part * (s.hi - s.lo) // 4
            return replace(s, hi=at), replace(s, lo=at)

        yield from each(k, "loop in two parts", cut)
    yield from each(k, "loop backwards", _backwards)
    yield from each(k, "loops exchanged", _interchanged)


def _backwards(s: Stmt) -> tuple[Stmt] | None:
    """The last point first; vectors in scratch have no such form."""
    if not isinstance(s, Loop) or s.blocked or s.hi - s.lo < 2:
        return None
    if any(isinstance(x, (Keep, Recall)) and s.var in x.offset.vars for x in statements(s.body)):
        return None
    return (replace(s, body=_mirrored(s.body, s.var, s.lo + s.hi - 1)),)


def _mirrored(body: Sequence[Stmt], var: int, total: int) -> tuple[Stmt, ...]:
    """`var` replaced by `total - var` in every expression."""

    def expression(e: Affine) -> Affine:
        c = e.coef(var)
        return e + Affine.var(var, -2 * c, c * total) if c else e

    def one(s: Stmt) -> Stmt:
        if isinstance(s, (Loop, Pass)):
            return replace(s, body=tuple(map(one, s.body)))
        changed = {f.name: expression(v) for f in fields(s) if isinstance(v := getattr(s, f.name), Affine)}
        return replace(s, **changed) if changed else s

    return tuple(map(one, body))


def _interchanged(s: Stmt) -> tuple[Stmt] | None:
    if not isinstance(s, Loop) or len(s.body) != 1 or not isinstance(inner := s.body[0], Loop):
        return None
    if not _inner(inner) or any(isinstance(x, (Keep, Recall)) for x in inner.body):
        return None
    return (replace(inner, body=(replace(s, body=inner.body),)),)


def _tiles(k: Kernel) -> Iterator[Fault]:
    for n, nest in enumerate(k.nests):
        for i, a in enumerate(nest.axes):
            where, size = f"tiles of i{a.var} of nest {n}", a.hi - a.lo
            loops = [s for s in statements(nest.body) if isinstance(s, Loop) and s.blocked and s.var == a.var]
            wide = any(s.vector for s in loops)
            steps = (k.lanes, 2 * k.lanes) if wide else (2, 3)
            for block in steps if a.block > 1 else ():
                if block < size:
                    yield f"tiles of {block}", where, lambda k, n=n, i=i, b=block: _blocked(k, n, i, b)
            middle = a.lo + (k.lanes if wide else size // 2)
            if a.lo < middle < a.hi:
                yield "nest in two parts", where, lambda k, n=n, i=i, m=middle: _two_nests(k, n, i, m)
            scratch = any(
                isinstance(x, (Keep, Recall)) and a.var in x.offset.vars for x in statements(nest.body)
            )
            if size > 1 and not scratch:
                yield "tiles backwards", where, lambda k, n=n, a=a: _nest(
                    k, n, lambda nest: (replace(nest, body=_mirrored(nest.body, a.var, a.lo + a.hi - 1)),)
                )  # fmt: skip
        if len(nest.axes) > 1:
            yield "axes of tiles exchanged", f"nest {n}", lambda k, n=n: _nest(
                k, n, lambda nest: (replace(nest, axes=nest.axes[::-1]),)
            )  # fmt: skip
        if n:
            yield "nests exchanged", f"nest {n}", lambda k, n=n: replace(
                k, nests=(*k.nests[: n - 1], k.nests[n], k.nests[n - 1], *k.nests[n + 1 :])
            )  # fmt: skip


def _nest(k: Kernel, n: int, change: Callable[[Nest], tuple[Nest, ...]]) -> Kernel:
    return replace(k, nests=(*k.nests[:n], *change(k.nests[n]), *k.nests[n + 1 :]))


def _blocked(k: Kernel, n: int, i: int, block: int) -> Kernel:
    def change(nest: Nest) -> tuple[Nest]:
        axes = tuple(replace(a, block=block) if j == i else a for j, a in enumerate(nest.axes))
        return (replace(nest, axes=axes),)

    return _nest(k, n, change)


def _two_nests(k: Kernel, n: int, i: int, middle: int) -> Kernel:
    def part(nest: Nest, **bounds: int) -> Nest:
        def one(s: Stmt) -> Stmt:
            if isinstance(s, Loop) and s.blocked and s.var == nest.axes[i].var:
                s = replace(s, **bounds)
            return replace(s, body=tuple(map(one, s.body))) if isinstance(s, (Loop, Pass)) else s

        axes = tuple(replace(a, **bounds) if j == i else a for j, a in enumerate(nest.axes))
        return replace(nest, axes=axes, body=tuple(map(one, nest.body)))

    return _nest(k, n, lambda nest: (part(nest, hi=middle), part(nest, lo=middle)))


def _statements(k: Kernel) -> Iterator[Fault]:
    """Neighbours of which neither reads the other; what is recalled, computed again."""
    parents, listed = _parents(k), list(numbered(k))
    for (at, s), (_, t) in pairwise(listed):
        if (
            parents[at] != parents[at + 1]
            or not isinstance(s, (*PURE, Accumulate))
            or not isinstance(t, PURE)
        ):
            continue
        if getattr(s, "dst", -1) not in _reads(t):
            yield "statements exchanged", words(k, at, s), lambda k, at=at, s=s, t=t: exchanged(
                exchanged(k, at + 1, lambda _: ()), at, lambda _: (t, s)
            )  # fmt: skip
        if (
            parents[at] >= 0
            and isinstance(s, (Load, Apply, Recall))
            and isinstance(t, Apply)
            and s.dst in t.args
        ):
            yield (
                "computed again for its reader",
                words(k, at, s),
                lambda k, at=at, s=s, t=t: _again(k, at, s, t),
            )
    for at, s in listed:
        if isinstance(s, Recall) and (made := _computed(k, at, s, parents)):
            yield "computed again, not recalled", words(k, at, s), lambda k, at=at, made=made: vectorized(
                exchanged(k, at, lambda _: made), *(m.dst for m in made)
            )  # fmt: skip


def _reads(s: Stmt) -> tuple[int, ...]:
    return s.args if isinstance(s, Apply) else (s.index,) if isinstance(s, Load) else ()


def _again(k: Kernel, at: int, s: Load | Apply | Recall, t: Apply) -> Kernel:
    """A second copy of `s`, read by its neighbour `t` in place of the first."""
    new = fresh(k)
    read = replace(t, args=tuple(new if a == s.dst else a for a in t.args))
    changed = exchanged(k, at + 1, lambda _: (replace(s, dst=new), read))
    return vectorized(changed, new) if s.dst in k.vectors else changed


def _computed(k: Kernel, at: int, s: Recall, parents: dict[int, int]) -> tuple[Stmt, ...]:
    """What was kept, from the program's inputs; nothing where it hangs on more than one loop's statements."""
    listed = dict(numbered(k))
    keeps = [
        i for i, x in listed.items() if isinstance(x, Keep) and (x.scratch, x.offset) == (s.scratch, s.offset)
    ]
    if len(keeps) != 1 or any(isinstance(x, Store) and x.param in _loaded(k) for x in listed.values()):
        return ()
    keep, first = keeps[0], fresh(k)
    needed, chain = {listed[keep].src}, list[Stmt]()
    for i in range(keep - 1, parents[keep], -1):
        x = listed[i]
        if getattr(x, "dst", -1) in needed:
            if not isinstance(x, (Load, Apply)) or parents[i] != parents[keep]:
                return ()
            chain.insert(0, x)
            needed |= set(_reads(x))
    names = {x.dst: first + i for i, x in enumerate(chain)} | ({chain[-1].dst: s.dst} if chain else {})
    return tuple(
        replace(
            x,
            dst=names[x.dst],
            **({"args": tuple(names.get(a, a) for a in x.args)} if isinstance(x, Apply) else {}),
        )
        for x in chain
    )


def _loaded(k: Kernel) -> set[int]:
    return {s.param for _, s in numbered(k) if isinstance(s, Load)}


def _parents(k: Kernel) -> dict[int, int]:
    """The number of the loop, pass or nest (negative) that each statement lies in."""
    found: dict[int, int] = {}

    def walk(body: Sequence[Stmt], parent: int) -> None:
        for s in body:
            at = len(found)
            found[at] = parent
            if isinstance(s, (Loop, Pass)):
                walk(s.body, at)

    for n, nest in enumerate(k.nests):
        walk(nest.body, -1 - n)
    return found


def _memory(k: Kernel) -> Iterator[Fault]:
    """Places written twice, rubbish first; addresses summed in another order; more scratch than needed."""

    stores = [s.param for _, s in numbered(k) if isinstance(s, Store)]

    def alone(s: Stmt) -> bool:
        """The spec wants every element of an output stored equally often."""
        return isinstance(s, Keep) or (isinstance(s, Store) and stores.count(s.param) == 1)

    def rubbish(s: Stmt) -> tuple[Stmt, ...] | None:
        if not alone(s):
            return None
        kind = DTYPES[dtype_of(k, s.src)]
        value = float("nan") if kind.is_float else kind.kind == "bool" or 77
        return Const(fresh(k), value, dtype_of(k, s.src)), replace(s, src=fresh(k)), s

    yield from each(k, "written twice", lambda s: (s, s) if alone(s) else None)
    yield from each(k, "rubbish written first", rubbish)

    def summed(s: Stmt) -> tuple[Stmt] | None:
        if not isinstance(s, (Load, Store, Keep, Recall)) or len(s.offset.terms) < 2:
            return None
        return (replace(s, offset=Affine(s.offset.const, s.offset.terms[::-1])),)

    yield from each(k, "address summed in another order", summed)
    if k.scratch:
        yield "more scratch than needed", "all", lambda k: replace(
            k, scratch=tuple(replace(s, elements=2 * s.elements) for s in k.scratch)
        )  # fmt: skip


def _reductions(k: Kernel) -> Iterator[Fault]:
    kinds = {a.id: a for _, p in numbered(k) if isinstance(p, Pass) for a in p.accumulators}

    def twice(s: Stmt) -> tuple[Stmt, ...] | None:
        again = isinstance(s, Accumulate) and kinds[s.acc].kind in (
            "amax",
            "amin",
            "any",
            "all",
            "argmax",
            "argmin",
        )
        return (s, s) if again else None

    def neutral(s: Stmt) -> tuple[Stmt, ...] | None:
        if (
            not isinstance(s, Accumulate)
            or kinds[s.acc].kind not in LEAST
            or not DTYPES[kinds[s.acc].dtype].is_float
        ):
            return None
        a, t = kinds[s.acc], fresh(k)
        return s, Const(t, LEAST[a.kind], a.dtype), replace(s, src=t)

    def sweeps(s: Stmt) -> tuple[Stmt, ...] | None:
        """One pass for every accumulator; the first keeps and stores."""
        if not isinstance(s, Pass) or len(s.accumulators) < 2:
            return None
        return tuple(
            Pass((a,), tuple(_only(x, a.id, writes=not i) for x in s.body))
            for i, a in enumerate(s.accumulators)
        )

    yield from each(k, "extremum taken in twice", twice)
    yield from each(k, "neutral element taken in", neutral)
    yield from each(k, "one sweep for each accumulator", sweeps)
    yield from each(
        k, "accumulators exchanged",
        lambda s: (replace(s, accumulators=s.accumulators[::-1]),)
        if isinstance(s, Pass) and len(s.accumulators) > 1 else None,
    )  # fmt: skip


def _only(s: Stmt, acc: int, *, writes: bool) -> Stmt:
    """A loop's body that takes in one accumulator's elements, and writes or does not."""
    if not isinstance(s, (Loop, Pass)):
        return s
    kept = (
        x for x in s.body
        if not (isinstance(x, Accumulate) and x.acc != acc) and (writes or not isinstance(x, (Keep, Store)))
    )  # fmt: skip
    return replace(s, body=tuple(_only(x, acc, writes=writes) for x in kept))
