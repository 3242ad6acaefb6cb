"""Correct variants of single statements: the same value, or one as near to fp64, by other primitives."""

# A statement's kind is checked where its number comes from.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator

from tests.mutation.rewrite import Fault, dtype_of, exchanged, fresh, numbered, vectorized, words

from fusebound.codegen.tile import Apply, Const, Finish, Kernel, Load, Recall, Stmt
from fusebound.ir.dtypes import DTYPES

LOG2E = 1.4426950408889634
MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
OPPOSITE = {"eq": "ne", "ne": "eq"}
EXACT = ("add", "sub", "mul", "div", "sqrt")
"""Rounded correctly to float64 and then to float32 they give what rounding once to float32 gives (Figueroa 1995)."""
SMOOTH = ("exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "sigmoid", "erf", "rsqrt", "reciprocal")

Made = tuple[str, tuple[Stmt, ...]]
"""What is done, and the statements instead; the last one has the old result's number."""


def formulas(k: Kernel) -> Iterator[Fault]:
    """Every variant of this kind, at every site."""
    for at, s in numbered(k):
        made = [*_identities(k, s)]
        if isinstance(s, Apply):
            made += (
                *_arithmetic(s, fresh(k)),
                *_logic(s, fresh(k)),
                *_wider(s, fresh(k)),
                *_contracted(k, s),
            )
        for what, new in made:
            yield what, words(k, at, s), lambda k, at=at, new=new: _put(k, at, new)


def _put(k: Kernel, at: int, new: tuple[Stmt, ...]) -> Kernel:
    """`new` in place of statement `at`, as wide as it was."""
    s = next(s for i, s in numbered(k) if i == at)
    changed = exchanged(k, at, lambda _: new)
    return vectorized(changed, *(n.dst for n in new)) if s.dst in k.vectors else changed


def _then(s: Apply, op: str, *args: int) -> Apply:
    """The statement with another primitive of the same type."""
    return Apply(s.dst, op, args, s.dtype, (s.arg_dtypes[0],) * len(args), s.note, s.rounds)


def _neg(t: int, of: int, dtype: str) -> Apply:
    return Apply(t, "neg", (of,), dtype, (dtype,))


def _identities(k: Kernel, s: Stmt) -> Iterator[Made]:
    """x · 1, x - 0, -(-x) and a choice between x and x."""
    if not isinstance(s, (Load, Recall, Apply, Finish)):
        return
    d = dtype_of(k, s.dst)
    if not DTYPES[d].is_float:
        return
    t, x = fresh(k), s.dst
    first = _numbered(s, t)
    one, zero, yes = Const(t + 1, 1.0, d), Const(t + 1, 0.0, d), Const(t + 1, True, "bool")
    yield "times one", (first, one, Apply(x, "mul", (t, t + 1), d, (d, d)))
    yield "less zero", (first, zero, Apply(x, "sub", (t, t + 1), d, (d, d)))
    yield "negated twice", (first, _neg(t + 1, t, d), _neg(x, t + 1, d))
    yield "choice between equals", (first, yes, Apply(x, "where", (t + 1, t, t), d, ("bool", d, d)))


def _numbered(s: Load | Recall | Apply | Finish, dst: int) -> Stmt:
    match s:
        case Load():
            return Load(dst, s.param, s.offset, s.dtype, s.index, s.stride, s.limit, s.index_dtype)
        case Recall():
            return Recall(dst, s.scratch, s.offset, s.dtype)
        case Apply():
            return Apply(dst, s.op, s.args, s.dtype, s.arg_dtypes, s.note, s.rounds)
        case Finish():
            return Finish(dst, s.acc, s.note)


def _arithmetic(s: Apply, t: int) -> Iterator[Made]:
    d, floating = s.arg_dtypes[0], DTYPES[s.arg_dtypes[0]].is_float
    match s.op, s.args:
        case "add" | "mul" | "and" | "or" | "xor" | "maximum" | "minimum", (a, b) if a != b:
            yield "operands of a commutative operator exchanged", (_then(s, s.op, b, a),)
    match s.op, s.args:
        case "sub", (a, b) if DTYPES[d].kind != "bool":
            yield "a - b as a + (-b)", (_neg(t, b, d), _then(s, "add", a, t))
        case "add", (a, b) if DTYPES[d].kind != "bool":
            yield "a + b as a - (-b)", (_neg(t, b, d), _then(s, "sub", a, t))
        case "mul" | "div", (a, b) if floating:
            yield "both signs changed", (_neg(t, a, d), _neg(t + 1, b, d), _then(s, s.op, t, t + 1))
            last = Apply(t + 1, s.op, (t, b), s.dtype, s.arg_dtypes, s.note, s.rounds)
            yield "sign changed, and changed again", (_neg(t, a, d), last, _neg(s.dst, t + 1, d))
        case "maximum" | "minimum", (a, b) if floating:
            other = "minimum" if s.op == "maximum" else "maximum"
            inner = Apply(t + 2, other, (t, t + 1), d, (d, d))
            yield (
                "extremum of the negatives",
                (_neg(t, a, d), _neg(t + 1, b, d), inner, _neg(s.dst, t + 2, d)),
            )
        case "neg", (a,) if floating:
            yield "-x as x · -1", (Const(t, -1.0, d), _then(s, "mul", a, t))
        case "abs", (a,) if floating:
            yield "|x| as max(x, -x)", (_neg(t, a, d), _then(s, "maximum", a, t))
        case "clamp_min" | "clamp_max", (a, b) if floating:
            test = Apply(t, "gt" if s.op == "clamp_min" else "lt", (b, a), "bool", (d, d))
            yield (
                "bound as a choice",
                (test, Apply(s.dst, "where", (t, b, a), d, ("bool", d, d), s.note, s.rounds)),
            )
        case "rsqrt", (a,):
            yield "1 / sqrt for rsqrt", (Apply(t, "sqrt", (a,), d, (d,)), _then(s, "reciprocal", t))


def _logic(s: Apply, t: int) -> Iterator[Made]:
    def is_not(of: int, dst: int) -> Apply:
        return Apply(dst, "not", (of,), "bool", ("bool",))

    if s.op in MIRRORED:
        mirrored = Apply(s.dst, MIRRORED[s.op], s.args[::-1], s.dtype, s.arg_dtypes[::-1], s.note)
        yield "comparison from the other side", (mirrored,)
    match s.op, s.args:
        case "eq" | "ne", _:
            yield (
                "opposite of the opposite",
                (Apply(t, OPPOSITE[s.op], s.args, "bool", s.arg_dtypes), is_not(t, s.dst)),
            )
        case "where", (c, a, b):
            swapped = Apply(
                s.dst, "where", (t, b, a), s.dtype, ("bool", *s.arg_dtypes[:0:-1]), s.note, s.rounds
            )
            yield "choice with the condition negated", (is_not(c, t), swapped)
        case "and" | "or", (a, b) if s.dtype == "bool":
            inner = Apply(t + 2, "or" if s.op == "and" else "and", (t, t + 1), "bool", ("bool", "bool"))
            yield "De Morgan", (is_not(a, t), is_not(b, t + 1), inner, is_not(t + 2, s.dst))


def _wider(s: Apply, t: int) -> Iterator[Made]:
    """A float32 operator in float64, and two other ways to the same transcendental."""
    if s.dtype != "float32" or set(s.arg_dtypes) != {"float32"}:
        return
    n, wide = len(s.args), "float64"
    casts = tuple(Apply(t + i, "cast", (a,), wide, ("float32",)) for i, a in enumerate(s.args))
    back = Apply(s.dst, "cast", (t + n,), "float32", (wide,), s.note)
    if s.op in (*EXACT, *SMOOTH, "fma"):
        what = "in float64" if s.op in EXACT else "nearer by float64"
        yield what, (*casts, Apply(t + n, s.op, tuple(t + i for i in range(n)), wide, (wide,) * n), back)
    if s.op == "exp":
        made = (
            Const(t + 2, LOG2E, wide), Apply(t + 3, "mul", (t, t + 2), wide, (wide, wide)),
            Apply(t + 1, "exp2", (t + 3,), wide, (wide,)),
        )  # fmt: skip
        yield "exp by way of exp2", (*casts, *made, back)
    if s.op == "sigmoid":
        made = (
            _neg(t + 2, t, wide), Apply(t + 3, "exp", (t + 2,), wide, (wide,)), Const(t + 4, 1.0, wide),
            Apply(t + 5, "add", (t + 3, t + 4), wide, (wide, wide)),
            Apply(t + 1, "reciprocal", (t + 5,), wide, (wide,)),
        )  # fmt: skip
        yield "sigmoid by way of exp", (*casts, *made, back)


def _contracted(k: Kernel, s: Apply) -> Iterator[Made]:
    """A product and a sum with one rounding, unless the product's rounded value was reduced before."""
    if s.op not in ("add", "sub") or s.dtype not in ("float32", "float64"):
        return
    made = {m.dst: m for _, m in numbered(k) if isinstance(m, (Apply, Finish))}
    for i, (product, other) in enumerate((s.args, s.args[::-1])):
        m = made.get(product)
        if (
            not isinstance(m, Apply)
            or m.op != "mul"
            or m.dtype != s.dtype
            or isinstance(made.get(other), Finish)
        ):
            continue
        t, d = fresh(k), s.dtype
        a, b = m.args
        signs: tuple[Stmt, ...] = ()
        if s.op == "sub":
            signs = (_neg(t, a, d),) if i else (_neg(t, other, d),)
            a, other = (t, other) if i else (a, t)
        yield "product and sum contracted", (*signs, Apply(s.dst, "fma", (a, b, other), d, (d, d, d), s.note))
