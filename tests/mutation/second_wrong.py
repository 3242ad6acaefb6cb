"""Faults that compilers have shipped, each with a call for which it is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from tests.mutation.harness import Subject
from tests.mutation.second import Args, Calls, Change, Editor, applied, at_op, peeled, programs, randn
from tests.mutation.second_norm import FIRST, N, in_chunks, one_pass, with_stats

from fusebound.codegen import tile
from fusebound.codegen.tile import Accumulate, Affine, Finish, Load, Loop, Pass, Stmt

INF, NAN = float("inf"), float("nan")


def _once(make: Callable[[], Args]) -> Calls:
    def calls() -> Iterator[Args]:
        yield make()

    return calls


def _with(t: torch.Tensor, at: Any, value: float) -> torch.Tensor:
    t[at] = value
    return t


# Rows


def _zero_in_the_maximum(k: tile.Kernel) -> tile.Kernel:
    """Lanes that a masked load left zero take part in the maximum."""
    e = Editor(k)

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        if not isinstance(s, Pass) or not s.accumulators or s.accumulators[0].kind != "amax":
            return None
        zero = e.const(0.0)
        return [replace(s, body=(*s.body, *e.take(), Accumulate(s.accumulators[0].id, zero, Affine())))]

    return e.rewritten(edit)


def _safe_row(k: tile.Kernel) -> tile.Kernel:
    """A row of -inf gives zeros, as some attention kernels want it, and not NaN."""
    e = Editor(k)
    passes = [s for n in k.nests for s in tile.statements(n.body) if isinstance(s, Pass)]
    accumulators = {a.id: a for s in passes for a in s.accumulators}

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        if not isinstance(s, Finish):
            return None
        bad, instead = (-INF, 0.0) if accumulators[s.acc].kind == "amax" else (0.0, 1.0)
        raw = e.finish(accumulators[s.acc])
        e.apply("where", e.apply("eq", raw, e.const(bad)), e.const(instead), raw, dtype="float32", dst=s.dst)
        return e.take()

    return e.rewritten(edit)


def _nan_lost_in_the_tail(k: tile.Kernel) -> tile.Kernel:
    """The vectors' maximum keeps NaN, that of what is left over does not."""
    e = Editor(k)

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        if not isinstance(s, Loop) or not s.vector:
            return None
        *body, add = s.body
        assert isinstance(add, Accumulate)
        value = e.copy(body)
        number = e.apply("where", e.apply("isnan", value), e.const(-INF), value)
        tail = (*e.take(), replace(add, src=number))
        return peeled(k, s, s.hi - s.hi % k.lanes, tail)

    return e.rewritten(edit)


def _last_of_equals(k: tile.Kernel) -> tile.Kernel:
    """The row is walked with positions from its end, so that the last of equal maxima wins."""
    e = Editor(k)

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        match s:
            case Accumulate():
                return [replace(s, where=s.where * -1 + 36)]
            case Finish():
                raw = e.new("int64", vector=False)
                e.apply("sub", e.const(36, "int64"), raw, dst=s.dst)
                return [replace(s, dst=raw), *e.take()]
            case _:
                return None

    return e.rewritten(edit)


def _without_the_33rd(k: tile.Kernel) -> tile.Kernel:
    """A remainder of one element is stored, but left out of the sum."""

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        if not isinstance(s, Loop) or not s.vector:
            return None
        return peeled(k, s, 32, [x for x in s.body if not isinstance(x, Accumulate)])

    return Editor(k).rewritten(edit)


# Points


def _half_a_table(k: tile.Kernel) -> tile.Kernel:
    """Both halves are rotated by the first half of the tables, which usually repeats."""

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        return [replace(s, offset=s.offset + -17)] if isinstance(s, Load) and s.param > 0 else None

    return Editor(k).rewritten(edit, nest=1)


def _from_zero_up(e: Editor, s: tile.Apply) -> None:
    e.apply("maximum", s.args[2], e.const(0, "int64"), dst=s.dst)


def _times_mask(e: Editor, s: tile.Apply) -> None:
    e.apply("mul", s.args[1], e.cast(s.args[0], "float32"), dst=s.dst)


def _wrapped(e: Editor, s: tile.Apply) -> None:
    e.cast(applied(e.kernel, "round").dst, "int8", dst=s.dst)


def _unrounded(e: Editor, s: tile.Apply) -> None:
    e.written.append(replace(s, rounds=False))


def _in_float(e: Editor, s: tile.Apply) -> None:
    a, b = (e.cast(x, "float32") for x in s.args)
    e.cast(e.apply("floor_div", a, b), "int32", dst=s.dst)


def _from_zero(e: Editor, s: tile.Apply) -> None:
    e.apply("sub", e.const(0.0), s.args[0], dst=s.dst)


def _flushed(e: Editor, s: tile.Apply) -> None:
    raw = e.apply("neg", *s.args)
    small = e.apply("lt", e.apply("abs", raw), e.const(2.0**-126))
    e.apply("where", small, e.apply("mul", raw, e.const(0.0)), raw, dtype="float32", dst=s.dst)


def _clamped(k: tile.Kernel) -> tile.Kernel:
    """An index out of range reads the nearest element and raises nothing."""
    e = Editor(k)

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        if not isinstance(s, Load) or s.index < 0:
            return None
        high = e.apply("minimum", s.index, e.const(s.limit - 1, s.index_dtype))
        index = e.apply("maximum", high, e.const(0, s.index_dtype))
        return [*e.take(), replace(s, index=index)]

    return e.rewritten(edit)


def _wide_average(k: tile.Kernel) -> tile.Kernel:
    """The sum of two bytes does not wrap, as eager's does."""
    e = Editor(k)
    add = applied(k, "add")

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        if s == add:
            return []
        if not isinstance(s, tile.Apply) or s.op != "floor_div":
            return None
        a, b = (e.cast(x, "int32") for x in add.args)
        e.cast(e.apply("floor_div", e.apply("add", a, b), e.const(2, "int32")), "int8", dst=s.dst)
        return e.take()

    return e.rewritten(edit)


def _not_finite(e: Editor, s: tile.Apply) -> None:
    e.apply("not", e.apply("isfinite", *s.args, dtype="bool"), dst=s.dst)


def _at_least_one(e: Editor, s: tile.Apply) -> None:
    e.apply("div", s.args[0], e.apply("maximum", s.args[1], e.const(1.0)), dst=s.dst)


def _epsilon_inside(k: tile.Kernel) -> tile.Kernel:
    """√(v + ε) for √v + ε."""
    e = Editor(k)
    root = applied(k, "sqrt")

    def edit(s: Stmt) -> Sequence[Stmt] | None:
        if s == root:
            return []
        if isinstance(s, tile.Apply) and s.op == "add" and root.dst in s.args:
            other = next(a for a in s.args if a != root.dst)
            e.apply("sqrt", e.apply("add", root.args[0], other), dst=s.dst)
            return e.take()
        return None

    return e.rewritten(edit)


def _floor_of_threads(text: str) -> str:
    """Each thread takes ⌊tiles / threads⌋ tiles; nobody takes those that are left."""
    start, end = text.index(".part0("), text.rindex("GOMP_parallel(ptr")
    part = re.sub(
        r"(%v\d+) = mul i64 (\d+), (%v\d+)\n  (%v\d+) = udiv i64 \1, (%v\d+)",
        r"\1 = udiv i64 \2, \5\n  \4 = mul i64 \1, \3",
        text[start:end],
    )
    return text[:start] + part + text[end:]


# Calls


def _packed(s: Subject) -> Callable[..., Any]:
    """The weight is copied at the first call, and again only where it lies at another address."""
    exe = s.executable()
    packed: dict[int, torch.Tensor] = {}

    def run(x: torch.Tensor, w: torch.Tensor) -> Any:
        return exe(x, packed.setdefault(w.data_ptr(), w.clone()))

    return run


def _one_buffer(s: Subject) -> Callable[..., Any]:
    """Every call returns the same memory."""
    exe = s.executable()
    held: list[torch.Tensor] = []

    def run(x: torch.Tensor) -> Any:
        held[:] = held or [exe(x).clone()]
        return held[0].copy_(exe(x))

    return run


def _written_early(s: Subject) -> Callable[..., Any]:
    """The first half of the target is written before the second half reads it."""
    exe = s.executable()

    def run(x: torch.Tensor) -> None:
        half = x.shape[0] // 2
        first = x.clone()
        exe(first)
        second = torch.cat((first[:half], x[half:]))
        exe(second)
        x.copy_(torch.cat((first[:half], second[half:])))

    return run


def _unchecked(s: Subject) -> Callable[..., Any]:
    """The plan's precondition, that a written argument overlaps no other, is not looked at."""
    exe = s.executable()
    exe.overlapping = lambda inputs: ""
    return exe


def _strides_ignored(s: Subject) -> Callable[..., Any]:
    """Memory is read in the order of the captured layout, whatever the layout of the argument."""
    exe = s.executable()

    def run(x: torch.Tensor, w: torch.Tensor) -> Any:
        return exe(x.as_strided(x.shape, (x.shape[1], 1)), w)

    return run


def _weights_change() -> Iterator[Args]:
    x, w = randn(5, 37), randn(37, seed=1)
    yield x, w
    w.mul_(2)
    yield x, w


def _two_calls() -> Iterator[Args]:
    yield (randn(5, 37),)
    yield (randn(5, 37, seed=1) * 9,)


def _two_large_calls() -> Iterator[Args]:
    for seed in (5, 6):
        yield randn(278001, seed=seed), randn(278001, seed=seed + 2)


def _halves_apart() -> Args:
    x, y, w, b = programs()["layer_norm"].args
    return torch.cat((x[:, :FIRST], x[:, FIRST:] + 3), -1), y, w, b


def _far_from_zero() -> Args:
    x, y, w, b = programs()["layer_norm"].args
    return x + 1e4, y, w, b


def _overlapping() -> Args:
    base = randn(38)
    return base[:37], base[1:]


def _ties() -> Args:
    return (torch.arange(5 * 37).reshape(5, 37) % 3 * 1.0,)


WRONG = {
    # rows whose values are all far below zero: every exponential underflows
    "zero_in_the_maximum": Change("softmax", _once(lambda: (randn(5, 37) - 400,)), tile=_zero_in_the_maximum),
    # a row of -inf
    "safe_row": Change("softmax", _once(lambda: (_with(randn(5, 37), 2, -INF),)), tile=_safe_row),
    # parts of a row with different means: n₂ for n₁·n₂/n
    "weight_of_the_combine": Change(
        "layer_norm", _once(_halves_apart), tile=with_stats(in_chunks(N - FIRST))
    ),
    # a mean that is large against the deviation
    "one_pass_variance": Change(
        "layer_norm", _once(_far_from_zero), tile=with_stats(one_pass("float32", shifted=False))
    ),
    # the second call with weights that an optimizer has stepped
    "packed_weight": Change("rms_norm", _weights_change, wrap=_packed),
    # tables whose halves differ
    "half_a_table": Change(
        "rope", _once(lambda: (randn(3, 34), randn(3, 34, seed=1), randn(3, 34, seed=2))), tile=_half_a_table
    ),
    # a negative index
    "negative_index_clamped": Change(
        "take", _once(lambda: (randn(37), torch.arange(-9, 10))), tile=at_op("where", _from_zero_up)
    ),
    # NaN where the mask is false
    "times_mask": Change(
        "masked_mean",
        _once(
            lambda: (
                _with(randn(5, 37), (0, 0), NAN),
                _with(torch.ones(5, 37, dtype=torch.bool), (0, 0), False),
            )
        ),
        tile=at_op("where", _times_mask),
    ),
    # second moments that are small against ε² (here 10⁻⁸ against gradients of 10⁻⁶)
    "epsilon_inside": Change(
        "adamw",
        _once(
            lambda: (randn(37), randn(37, seed=1) * 1e-6, randn(37, seed=2) * 1e-6, torch.full((37,), 1e-12))
        ),
        tile=_epsilon_inside,
    ),
    # an update that reads its own target elsewhere
    "written_early": Change("mirrored", _once(lambda: (randn(37),)), wrap=_written_early),
    # values beyond the range of int8
    "wrapped_int8": Change("quantize", _once(lambda: (randn(37) * 20,)), tile=at_op("cast", _wrapped)),
    # x·y that is lost in the rounding of x + x·y to bfloat16
    "unrounded_comparison": Change(
        "unmoved",
        _once(lambda: (randn(37).bfloat16(), torch.full((37,), 1e-4).bfloat16())),
        tile=at_op("add", _unrounded),
    ),
    # equal maxima in a row
    "last_of_equals": Change("argmax", _once(_ties), tile=_last_of_equals),
    # NaN in the last partial vector
    "nan_lost_in_the_tail": Change(
        "amax", _once(lambda: (_with(randn(5, 37), (1, 36), NAN),)), tile=_nan_lost_in_the_tail
    ),
    # integers beyond 2²⁴
    "division_in_float": Change(
        "divide",
        _once(lambda: (torch.full((37,), 2**24 + 1, dtype=torch.int32), torch.ones(37, dtype=torch.int32))),
        tile=at_op("floor_div", _in_float),
    ),
    # the second of two outputs, in rows with a remainder of one
    "without_the_33rd": Change(
        "tanh_and_sum", _once(lambda: (randn(5, 33), randn(5, 33, seed=1))), tile=_without_the_33rd
    ),
    # two threads and 17 tiles
    "floor_of_threads": Change("affine", _two_large_calls, text=_floor_of_threads),
    # a result that is held while the next one is computed
    "one_buffer": Change("amax", _two_calls, wrap=_one_buffer),
    # zero without a sign
    "negation_from_zero": Change(
        "opposite", _once(lambda: (torch.zeros(37), torch.ones(37))), tile=at_op("neg", _from_zero)
    ),
    # subnormal results
    "flushed": Change(
        "opposite", _once(lambda: (randn(37) * 1e-20, randn(37, seed=1) * 1e-20)), tile=at_op("neg", _flushed)
    ),
    # an index out of range, for which eager raises
    "index_without_error": Change(
        "picked", _once(lambda: (randn(5, 37), torch.tensor([0, 37, 1, 2, 3]))), tile=_clamped
    ),
    # sums beyond the range of int8
    "wide_average": Change(
        "average",
        _once(lambda: (torch.full((37,), 100).to(torch.int8), torch.full((37,), 100).to(torch.int8))),
        tile=_wide_average,
    ),
    # infinities
    "infinity_as_nan": Change(
        "cleaned",
        _once(lambda: (_with(randn(37), 3, INF), randn(37, seed=1))),
        tile=at_op("isnan", _not_finite),
    ),
    # a row with an empty mask
    "at_least_one": Change(
        "masked_mean",
        _once(lambda: (randn(5, 37), _with(torch.ones(5, 37, dtype=torch.bool), 2, False))),
        tile=at_op("div", _at_least_one),
    ),
    # overlapping arguments, one of them written
    "unchecked_overlap": Change("doubled_and_read", _once(_overlapping), wrap=_unchecked),
    # an argument of another layout than the captured one
    "strides_ignored": Change(
        "rms_norm", _once(lambda: (randn(37, 5).t(), randn(37, seed=1))), wrap=_strides_ignored
    ),
}
"""Each fault by name; the comment says for which calls it is wrong, the calls show it."""
