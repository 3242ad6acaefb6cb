"""Correct variants that look suspicious: other orders, other formulas, other roundings no worse than eager's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.mutation.harness import Mutation, Subject
from tests.mutation.rewrite import Edit, exchanged, fresh, numbered, vectorized, words

from fusebound.codegen.tile import Apply, Const, Kernel, Loop, Pass, Scratch, Stmt

LOG2E = 1.4426950408889634


def variants(subject: Subject) -> Iterator[Mutation]:
    """All variants of a program; the verifier has to pass every one."""
    for group, kernel in subject.kernels.items() if subject.given is subject.args else ():
        for what, where, edit in _edits(kernel.program):
            yield Mutation(what, f"{group} {where}", tile=edit, group=group)


def _edits(k: Kernel) -> Iterator[tuple[str, str, Edit]]:
    for copies in (1, 2, 4):
        if any(isinstance(s, Loop) and s.vector and _inner(s) and s.copies != copies for _, s in numbered(k)):
            yield "another number of accumulators", f"{copies}", lambda k, c=copies: _copies(k, c)
    yield "half as many lanes", "all", lambda k: replace(k, lanes=k.lanes // 2)
    yield "one lane", "all", lambda k: _copies(replace(k, lanes=1), 1)
    for at, s in numbered(k):
        match s:
            case Apply(op="exp", dtype="float32"):
                yield "exp by way of exp2", words(k, at, s), lambda k, at=at: _by_exp2(k, at)
            case Apply(op="add" | "mul" | "and" | "or" | "xor", args=(a, b)) if a != b:
                yield (
                    "operands of a commutative operator exchanged",
                    words(k, at, s),
                    lambda k, at=at: _flipped(k, at),
                )
            case Apply(op="sub", dtype="float32" | "float64"):
                yield "a - b as a + (-b)", words(k, at, s), lambda k, at=at: _added(k, at)
            case Apply(op="div", dtype="float32") if _constant(k, s.args[1]):
                yield "division by a constant in float64", words(k, at, s), lambda k, at=at: _wide(k, at)
            case Apply(op="rsqrt", dtype="float32"):
                yield "1 / sqrt for rsqrt", words(k, at, s), lambda k, at=at: _quotient(k, at)
            case Loop() if s.vector and not s.blocked and s.hi - s.lo > k.lanes and _inner(s):
                yield "loop in two parts", words(k, at, s), lambda k, at=at: _parted(k, at)
            case Pass(accumulators=accs) if len(accs) > 1:
                yield "accumulators exchanged", words(k, at, s), lambda k, at=at: exchanged(k, at, _reversed)
            case _:
                pass
    if k.scratch and k.vector in k.vectors:
        yield (
            "more scratch than needed",
            "all",
            lambda k: replace(k, scratch=tuple(Scratch(s.id, 2 * s.elements, s.dtype) for s in k.scratch)),
        )


def _inner(s: Loop) -> bool:
    return not any(isinstance(x, (Loop, Pass)) for x in s.body)


def _constant(k: Kernel, result: int) -> bool:
    return any(isinstance(s, Const) and s.dst == result for _, s in numbered(k))


def _copies(k: Kernel, copies: int) -> Kernel:
    for at, s in numbered(k):
        if isinstance(s, Loop) and s.vector and _inner(s):
            k = exchanged(k, at, lambda s: (replace(s, copies=copies),) if isinstance(s, Loop) else (s,))
    return k


def _with(k: Kernel, at: int, made: list[Stmt], last: Stmt, *results: int) -> Kernel:
    """Statement `at` replaced by `made` and `last`; `results` are as wide as it was."""
    s = next(s for i, s in numbered(k) if i == at)
    changed = exchanged(k, at, lambda _: (*made, last))
    return vectorized(changed, *results) if isinstance(s, Apply) and s.dst in k.vectors else changed


def _apply(k: Kernel, at: int) -> Apply:
    s = next(s for i, s in numbered(k) if i == at)
    assert isinstance(s, Apply)
    return s


def _by_exp2(k: Kernel, at: int) -> Kernel:
    """exp(x) = 2^(x·log2 e), the product in float64."""
    s, t = _apply(k, at), fresh(k)
    made: list[Stmt] = [
        Apply(t, "cast", s.args, "float64", ("float32",)), Const(t + 1, LOG2E, "float64"),
        Apply(t + 2, "mul", (t, t + 1), "float64", ("float64",) * 2),
        Apply(t + 3, "exp2", (t + 2,), "float64", ("float64",)),
    ]  # fmt: skip
    last = Apply(s.dst, "cast", (t + 3,), "float32", ("float64",), s.note)
    return _with(k, at, made, last, t, t + 1, t + 2, t + 3)


def _flipped(k: Kernel, at: int) -> Kernel:
    s = _apply(k, at)
    return _with(k, at, [], replace(s, args=s.args[::-1]))


def _added(k: Kernel, at: int) -> Kernel:
    s, t = _apply(k, at), fresh(k)
    made: list[Stmt] = [Apply(t, "neg", (s.args[1],), s.dtype, (s.dtype,))]
    return _with(k, at, made, replace(s, op="add", args=(s.args[0], t)), t)


def _wide(k: Kernel, at: int) -> Kernel:
    s, t = _apply(k, at), fresh(k)
    made: list[Stmt] = [Apply(t + i, "cast", (a,), "float64", ("float32",)) for i, a in enumerate(s.args)]
    made.append(Apply(t + 2, "div", (t, t + 1), "float64", ("float64",) * 2))
    return _with(k, at, made, Apply(s.dst, "cast", (t + 2,), "float32", ("float64",)), t, t + 1, t + 2)


def _quotient(k: Kernel, at: int) -> Kernel:
    s, t = _apply(k, at), fresh(k)
    made: list[Stmt] = [Apply(t, "sqrt", s.args, s.dtype, (s.dtype,))]
    return _with(k, at, made, replace(s, op="reciprocal", args=(t,)), t)


def _parted(k: Kernel, at: int) -> Kernel:
    """The first vector apart from the others; results of the two bodies have the same numbers."""

    def new(s: Stmt) -> tuple[Stmt, ...]:
        assert isinstance(s, Loop)
        cut = s.lo + k.lanes
        return replace(s, hi=cut, copies=1), replace(s, lo=cut)

    return exchanged(k, at, new)


def _reversed(s: Stmt) -> tuple[Stmt, ...]:
    assert isinstance(s, Pass)
    return (replace(s, accumulators=s.accumulators[::-1]),)
