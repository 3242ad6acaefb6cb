"""Running reductions on vectors: identities, steps, and the fixed trees that combine lanes.

Sums and products of floats accumulate in float64. The order depends on the tile only: lanes first, then the copies
of an unrolled loop, then the lanes, a few one after another, more as a tree; never on the thread count.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from fusebound.codegen import math
from fusebound.codegen.emit import Fn, Reg
from fusebound.codegen.llvm_types import elem, lanes, vec
from fusebound.codegen.order import CHAIN
from fusebound.codegen.tile import Accumulator
from fusebound.ir.dtypes import DTYPES

Cells = tuple[Reg, ...]
"""Stack slots of one accumulator: the value and, for argmax and argmin, the position."""

UNSET = (1 << 63) - 1


def accumulator_type(a: Accumulator) -> str:
    """The element type (LLVM text) in which a reduction accumulates."""
    if a.kind in ("any", "all"):
        return "i1"
    if a.kind in ("sum", "prod"):
        return "double" if DTYPES[a.result].is_float else math.compute_type(a.result)
    return math.compute_type(a.dtype)


def identity(a: Accumulator) -> float | int | bool:
    """The value that changes nothing."""
    kind = DTYPES[a.dtype]
    match a.kind:
        case "sum" | "any":
            return 0
        case "prod" | "all":
            return 1
        case "amax" | "argmax":
            return float("-inf") if kind.is_float else _int_min(a.dtype)
        case _:
            return float("inf") if kind.is_float else _int_max(a.dtype)


def _int_min(dtype: str) -> int:
    d = DTYPES[dtype]
    return -(1 << (8 * d.itemsize - 1)) if d.kind == "int" else 0


def _int_max(dtype: str) -> int:
    d = DTYPES[dtype]
    return 1 if d.kind == "bool" else (1 << (8 * d.itemsize - (d.kind == "int"))) - 1


def start(fn: Fn, a: Accumulator, width: int) -> Cells:
    """Fresh cells that hold the identity in `width` lanes."""
    types = [vec(accumulator_type(a), width)]
    values: list[float | int | bool] = [identity(a)]
    if a.kind in ("argmax", "argmin"):
        types.append(vec("i64", width))
        values.append(UNSET)
    cells = tuple(fn.alloca(_slot(t)) for t in types)
    for cell, t, v in zip(cells, types, values, strict=True):
        _put(fn, cell, fn.const(v, t))
    return cells


def step(fn: Fn, a: Accumulator, cells: Cells, src: Reg, where: Reg | None) -> None:
    """Take one vector of elements in; lanes outside `fn.active` change nothing."""
    width = lanes(src.type)
    value = _prepare(fn, a, src, width)
    types = [vec(accumulator_type(a), width), vec("i64", width)]
    old = [_get(fn, c, t) for c, t in zip(cells, types, strict=False)]
    new = [value] if where is None else [value, where]
    out = _combine(fn, a, old, new, width)
    for cell, o, n in zip(cells, old, out, strict=True):
        _put(fn, cell, n if fn.active is None else fn.select(fn.active, n, o))


def finish(fn: Fn, a: Accumulator, copies: Sequence[Cells], *, used: int, width: int) -> Reg:
    """The result in its computing type: as one lane of the `used` first lanes, or lane by lane if that is 0."""
    return _result(fn, a, combined(fn, a, copies, used=used, width=width))


def combined(fn: Fn, a: Accumulator, copies: Sequence[Cells], *, used: int, width: int) -> Sequence[Reg]:
    """What accumulated, before it is rounded: the value and, for argmax and argmin, the position."""
    types = [vec(accumulator_type(a), width), vec("i64", width)]
    parts = [[_get(fn, c, t) for c, t in zip(cells, types, strict=False)] for cells in copies]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [_combine(fn, a, x, y, width) for x, y in pairs]
    total = parts[0]
    if 0 < used <= CHAIN:
        first, *rest = ([fn.shuffle(t, t, [i]) for t in total] for i in range(used))
        return reduce(lambda x, y: _combine(fn, a, x, y, 1), rest, first)
    while used and lanes(total[0].type) > 1:
        halves = [fn.halves(t) for t in total]
        total = _combine(fn, a, [h[0] for h in halves], [h[1] for h in halves], lanes(halves[0][0].type))
    return total


def deposit(fn: Fn, total: Sequence[Reg], places: Sequence[Reg]) -> None:
    """Leave what accumulated in memory, at one place for the value and one for the position."""
    for r, place in zip(total, places, strict=True):
        stored = fn.cast("zext", r, _slot(r.type)) if elem(r.type) == "i1" else r
        fn.store(stored, place, align=1, mask=fn.active if lanes(r.type) > 1 else None)


def collect(fn: Fn, a: Accumulator, places: Sequence[Reg], step: int, chunks: int, width: int) -> Reg:
    """The result over so many chunks, one after another, which lie `step` elements apart from `places` on."""
    types = part_types(a)
    first = [_deposited(fn, t, place, width) for t, place in zip(types, places, strict=True)]
    with fn.loop(1, chunks, carry=first) as it:
        at = fn.op("mul", it.index, fn.const(step, "i64"))
        found = [
            _deposited(fn, t, fn.gep(p, _slot(t), at), width) for t, p in zip(types, places, strict=True)
        ]
        it.update(*_combine(fn, a, it.values, found, width))
    return _result(fn, a, it.results)


def part_types(a: Accumulator) -> list[str]:
    """The element types (LLVM text) of what accumulates."""
    return [accumulator_type(a)] + ["i64"] * (a.kind in ("argmax", "argmin"))


def _deposited(fn: Fn, t: str, place: Reg, width: int) -> Reg:
    raw = fn.load(vec(stored(t), width), place, align=1, mask=fn.active if width > 1 else None)
    return fn.cast("trunc", raw, vec("i1", width)) if t == "i1" else raw


def _prepare(fn: Fn, a: Accumulator, src: Reg, width: int) -> Reg:
    """An element in the accumulator's type."""
    if a.kind in ("any", "all"):
        return math.convert(fn, src, a.dtype, "bool", width)
    if a.kind in ("sum", "prod"):
        return math.convert(fn, src, a.dtype, "float64" if DTYPES[a.result].is_float else a.result, width)
    return src


def _combine(fn: Fn, a: Accumulator, x: Sequence[Reg], y: Sequence[Reg], width: int) -> list[Reg]:
    floating = elem(x[0].type) in ("float", "double")
    match a.kind:
        case "sum":
            return [fn.op("fadd" if floating else "add", x[0], y[0])]
        case "prod":
            return [fn.op("fmul" if floating else "mul", x[0], y[0])]
        case "any":
            return [fn.op("or", x[0], y[0])]
        case "all":
            return [fn.op("and", x[0], y[0])]
        case "amax" | "amin":
            op = "maximum" if a.kind == "amax" else "minimum"
            return [math.apply(fn, op, [x[0], y[0]], a.dtype, width, in_dtypes=(a.dtype, a.dtype))]
        case _:
            better = _better(fn, a, x, y)
            return [fn.select(better, y[0], x[0]), fn.select(better, y[1], x[1])]


def _better(fn: Fn, a: Accumulator, x: Sequence[Reg], y: Sequence[Reg]) -> Reg:
    """Whether y takes x's place: larger (smaller) or NaN where x is not; the earlier position among equals."""
    greater = a.kind == "argmax"
    if DTYPES[a.dtype].is_float:
        wins = fn.fcmp("ogt" if greater else "olt", y[0], x[0])
        ties = fn.fcmp("oeq", y[0], x[0])
        nan_x, nan_y = fn.fcmp("uno", x[0], x[0]), fn.fcmp("uno", y[0], y[0])
        number_x = fn.op("xor", nan_x, fn.const(True, nan_x.type))
        wins = fn.op("or", wins, fn.op("and", nan_y, number_x))
        ties = fn.op("or", ties, fn.op("and", nan_x, nan_y))
    else:
        sign = "s" if DTYPES[a.dtype].kind == "int" else "u"
        wins = fn.icmp(f"{sign}{'gt' if greater else 'lt'}", y[0], x[0])
        ties = fn.icmp("eq", y[0], x[0])
    earlier = fn.icmp("slt", y[1], x[1])
    return fn.op("or", wins, fn.op("and", ties, earlier))


def _result(fn: Fn, a: Accumulator, total: Sequence[Reg]) -> Reg:
    width = lanes(total[0].type)
    if a.kind in ("argmax", "argmin"):
        return total[1]
    if elem(total[0].type) == "double" and a.kind in ("sum", "prod"):
        return math.convert(fn, total[0], "float64", a.result, width)
    return total[0]


def stored(element: str) -> str:
    """The element type (LLVM text) in memory: a byte for a bit."""
    return "i8" if element == "i1" else element


def _slot(t: str) -> str:
    return vec(stored(elem(t)), lanes(t))


def _put(fn: Fn, cell: Reg, r: Reg) -> None:
    fn.store(fn.cast("zext", r, _slot(r.type)) if elem(r.type) == "i1" else r, cell, align=64)


def _get(fn: Fn, cell: Reg, t: str) -> Reg:
    raw = fn.load(_slot(t), cell, align=64)
    return fn.cast("trunc", raw, t) if elem(t) == "i1" else raw
