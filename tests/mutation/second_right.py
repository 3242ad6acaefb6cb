"""Twenty programs that look wrong and keep the numerics contract."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from tests.mutation.harness import Subject
from tests.mutation.second import Change, Editor, applied, at_op, edited
from tests.mutation.second_norm import FIRST, N, backwards, in_chunks, one_pass, with_stats

from fusebound.codegen import tile
from fusebound.codegen.tile import (
    Accumulate,
    Affine,
    Apply,
    Finish,
    Keep,
    Load,
    Loop,
    Pass,
    Recall,
    Scratch,
    Stmt,
)

LOG2_E = 1 / math.log(2)
HIGH = float(np.float32(LOG2_E))
"""log₂ e in two float32 parts, so that d · log₂ e keeps what one part would lose where d is large."""


def _power_of_two(e: Editor, s: Apply) -> None:
    """exp(d) = 2^(d · log₂ e)."""
    d = s.args[0]
    low = e.apply("mul", d, e.const(LOG2_E - HIGH))
    e.apply("exp2", e.apply("fma", d, e.const(HIGH), low), dst=s.dst)


def _by_reciprocal(k: tile.Kernel) -> tile.Kernel:
    """One division a row, and a multiplication an element."""
    e = Editor(k)
    quotient = applied(k, "div")

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        if isinstance(s, Finish) and s.dst == quotient.args[1]:
            raw = e.new("float32", vector=False)
            e.apply("div", e.const(1.0), raw, dst=s.dst)
            return [replace(s, dst=raw), *e.take()]
        return [replace(quotient, op="mul")] if s == quotient else None

    return e.rewritten(edit)


def _rounded_maximum(k: tile.Kernel) -> tile.Kernel:
    """⌈max⌉ is subtracted: any number near the maximum does, as long as both sums take the same."""
    e = Editor(k)
    maximum = applied(k, "sub").args[1]

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        if not isinstance(s, Finish) or s.dst != maximum:
            return None
        raw = e.new("float32", vector=False)
        e.apply("ceil", raw, dst=s.dst)
        return [replace(s, dst=raw), *e.take()]

    return e.rewritten(edit)


def _fused_add(k: tile.Kernel) -> tile.Kernel:
    """A product and a sum of another operand than products: one rounding for two is never further from the truth."""
    add, mul = applied(k, "add"), applied(k, "mul")
    assert add.args[0] == mul.dst
    kinds = ("float32",) * 3

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        if s == mul:
            return []
        return [replace(add, op="fma", args=(*mul.args, add.args[1]), arg_dtypes=kinds)] if s == add else None

    return Editor(k).rewritten(edit)


def _wide_products(k: tile.Kernel) -> tile.Kernel:
    """x · r · w in float64."""
    e = Editor(k)
    first, last = applied(k, "mul", -2), applied(k, "mul", -1)
    assert last.args[0] == first.dst

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        if s == first:
            return []
        if s != last:
            return None
        x, r, w = (e.cast(a, "float64") for a in (*first.args, last.args[1]))
        e.cast(e.apply("mul", e.apply("mul", x, w), r), "float32", dst=last.dst)
        return e.take()

    return e.rewritten(edit)


def _other_tree(k: tile.Kernel) -> tile.Kernel:
    """Two vectors of partial sums where there was one, or one where there were more."""

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        return [replace(s, copies=2 if s.copies == 1 else 1)] if isinstance(s, Loop) and s.vector else None

    return Editor(k).rewritten(edit)


def _wide_rotation(k: tile.Kernel) -> tile.Kernel:
    """Everything between the loads and the stores in float64."""
    e = Editor(k)
    wide: dict[int, int] = {}

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        if isinstance(s, Apply):
            args = [wide.get(a) or e.cast(a, "float64") for a in s.args]
            wide[s.dst] = e.apply(s.op, *args)
            e.cast(wide[s.dst], "float32", dst=s.dst)
            return e.take()
        return None

    return e.rewritten(edit)


def _wrap_by_product(e: Editor, s: Apply) -> None:
    """t + n · (t < 0), a select without one."""
    negative, _, index = s.args
    size = next(c.dst for n in e.kernel.nests for c in n.body if isinstance(c, tile.Const) and c.value == N)
    e.apply("add", index, e.apply("mul", e.cast(negative, "int64"), size), dst=s.dst)


def _counted_in_float(k: tile.Kernel) -> tile.Kernel:
    """The mask is counted as float32 ones, exact up to 2²⁴ in an accumulator that is wider still."""
    e = Editor(k)

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        match s:
            case Apply(op="cast", dtype="int64"):
                return [replace(s, dtype="float32")]
            case Apply(op="cast", dtype="float32"):
                return [replace(s, arg_dtypes=("float32",))]
            case Pass():
                accs = tuple(
                    replace(a, dtype="float32", result="float32") if a.result == "int64" else a
                    for a in s.accumulators
                )
                return [replace(s, accumulators=accs, body=edited(s.body, edit))]
            case _:
                return None

    return e.rewritten(edit)


def _selects(k: tile.Kernel) -> tile.Kernel:
    """The clamp as two comparisons that are false for NaN, in the other order."""
    e = Editor(k)
    made = {s.dst: s for n in k.nests for s in tile.statements(n.body) if isinstance(s, Apply)}
    upper = made[applied(k, "cast").args[0]]
    (most,), (inner,) = ([a for a in upper.args if (a in k.vectors) is wide] for wide in (False, True))
    lower = made[inner]
    (least,), (x,) = ([a for a in lower.args if (a in k.vectors) is wide] for wide in (False, True))

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        if s == lower:
            return []
        if s != upper:
            return None
        capped = e.apply("where", e.apply("gt", x, most), most, x)
        e.apply("where", e.apply("lt", capped, least), least, capped, dst=upper.dst)
        return e.take()

    return e.rewritten(edit)


def _both_ways(e: Editor, s: Apply) -> None:
    """a ≤ b and a ≥ b: false for NaN, true for zeros of either sign, as equality is."""
    e.apply("and", e.apply("le", *s.args), e.apply("ge", *s.args), dst=s.dst)


def _argmax_from_the_end(k: tile.Kernel) -> tile.Kernel:
    """The row is walked from its end, with true positions."""

    def mirrored(at: Affine, v: int) -> Affine:
        return at + Affine.var(v, -2 * at.coef(v), (N - 1) * at.coef(v))

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        match s:
            case Load():
                return [replace(s, offset=mirrored(s.offset, k.vector))]
            case Accumulate():
                return [replace(s, where=mirrored(s.where, k.vector))]
            case _:
                return None

    return Editor(k).rewritten(edit)


def _nan_apart(k: tile.Kernel) -> tile.Kernel:
    """A maximum that skips NaN, and a flag beside it that brings NaN back."""
    e = Editor(k)
    seen = replace(e.sum("bool", "bool"), kind="any")

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        match s:
            case Pass():
                return [replace(s, accumulators=(*s.accumulators, seen), body=edited(s.body, edit))]
            case Accumulate():
                bad = e.apply("isnan", s.src)
                number = e.apply("where", bad, e.const(-math.inf), s.src)
                return [*e.take(), replace(s, src=number), Accumulate(seen.id, bad, Affine())]
            case Finish():
                raw = e.new("float32", vector=False)
                e.apply("where", e.finish(seen), e.const(math.nan), raw, dst=s.dst)
                return [replace(s, dst=raw), *e.take()]
            case _:
                return None

    return e.rewritten(edit)


def _in_double(e: Editor, s: Apply) -> None:
    """⌊a / b⌋ of 32-bit integers in float64, where every one of them is exact."""
    a, b = (e.cast(x, "float64") for x in s.args)
    e.cast(e.apply("floor_div", a, b), "int32", dst=s.dst)


def _compensated(k: tile.Kernel) -> tile.Kernel:
    """The sum in float32, one after another in each lane, with Kahan's correction; both are added up at the end."""
    e = Editor(k)
    here = Affine()

    def recall(slot: int) -> int:
        number = e.new("float32", vector=True)
        e.written.append(Recall(number, slot, here, "float32"))
        return number

    def add(s: Accumulate) -> tuple[Stmt, ...]:
        total, lost = recall(0), recall(1)
        y = e.apply("sub", s.src, lost)
        after = e.apply("add", total, y)
        left = e.apply("sub", e.apply("sub", after, total), y)
        return (*e.take(), Keep(0, here, after), Keep(1, here, left))

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        if isinstance(s, Accumulate):
            return add(s)
        if not isinstance(s, Pass):
            return None
        zero = e.const(0.0)
        start = (*e.take(), Keep(0, here, zero), Keep(1, here, zero))
        body = edited(s.body, edit)
        total, left = recall(0), e.apply("neg", recall(1))
        acc = s.accumulators[0].id
        sums = (*e.take(), Accumulate(acc, total, here), Accumulate(acc, left, here))
        return [*start, replace(s, body=(*body, *sums))]

    slots = tuple(Scratch(i, k.lanes, "float32") for i in range(2))
    return replace(e.rewritten(edit), scratch=slots)


def _threads_from_the_end(text: str) -> str:
    """The first thread takes the last tiles."""
    start, end = text.index(".part0("), text.rindex("GOMP_parallel(ptr")
    part = text[start:end]
    thread = re.search(r"(%v\d+) = (sext i32 %v\d+ to i64)\n", part)
    threads = re.findall(r"(%v\d+) = sext i32 %v\d+ to i64\n", part)[1]
    assert thread
    part = part.replace(thread[0], f"%own = {thread[2]}\n")
    count = re.search(rf"  {threads} = .*\n", part)
    assert count
    turned = f"  %last = sub i64 {threads}, 1\n  {thread[1]} = sub i64 %last, %own\n"
    return text[:start] + part.replace(count[0], count[0] + turned) + text[end:]


def _on_copies(s: Subject) -> Callable[..., Any]:
    """The step is made on copies of all four tensors, which are then written back in another order; not where some
    share memory, which copies would not."""
    exe = s.executable()

    def run(*given: torch.Tensor) -> None:
        if exe.overlapping(given):
            exe(*given)
            return
        copies = [t.clone() for t in given]
        exe(*copies)
        for t, c in reversed(list(zip(given, copies, strict=True))):
            t.copy_(c)

    return run


RIGHT = {
    "power_of_two": Change("softmax", tile=at_op("exp", _power_of_two)),
    "by_reciprocal": Change("softmax", tile=_by_reciprocal),
    "rounded_maximum": Change("softmax", tile=_rounded_maximum),
    "combined_chunks": Change("layer_norm", tile=with_stats(in_chunks(FIRST * (N - FIRST) / N))),
    "shifted_one_pass": Change("layer_norm", tile=with_stats(one_pass("float64", shifted=True))),
    "norm_from_the_end": Change("layer_norm", tile=with_stats(backwards)),
    "fused_add": Change("gain", tile=_fused_add),
    "wide_products": Change("rms_norm", tile=_wide_products),
    "other_tree": Change("rms_norm", tile=_other_tree),
    "wide_rotation": Change("rope", tile=_wide_rotation),
    "wrap_by_product": Change("take", tile=at_op("where", _wrap_by_product)),
    "counted_in_float": Change("masked_mean", tile=_counted_in_float),
    "on_copies": Change("adamw", wrap=_on_copies),
    "selects": Change("quantize", tile=_selects),
    "both_ways": Change("unmoved", tile=at_op("eq", _both_ways)),
    "argmax_from_the_end": Change("argmax", tile=_argmax_from_the_end),
    "nan_apart": Change("amax", tile=_nan_apart),
    "division_in_double": Change("divide", tile=at_op("floor_div", _in_double)),
    "compensated": Change("tanh_and_sum", tile=_compensated),
    "threads_from_the_end": Change("affine", text=_threads_from_the_end),
}
"""Each variant by name."""
