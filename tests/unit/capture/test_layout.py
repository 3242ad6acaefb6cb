"""Strides of results: those that eager gives, whatever the layout of the operands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from fusebound.capture.layout import indexed, iterated
from fusebound.capture.torch import capture

TWO: list[Any] = [
    torch.floor_divide, torch.copysign, torch.xlogy, torch.logaddexp, torch.logical_and, torch.heaviside, torch.add,
]  # fmt: skip
THREE: list[Any] = [
    torch.addcdiv,
    torch.addcmul,
    torch.lerp,
    torch.where,
    torch.clamp,
]


def laid_out(r: Random, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Zeros and ones, with axes in any order, gaps and repetitions."""
    axes, strides, step = list(range(len(shape))), [0] * len(shape), r.choice((1, 2))
    r.shuffle(axes)
    for i in axes:
        if r.random() < 0.9:
            strides[i] = step
            step *= shape[i]
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    return (torch.arange(span) % 2).to(dtype).as_strided(shape, strides)


def operands(r: Random, count: int) -> list[Tensor]:
    shape = [r.choice((1, 2, 3)) for _ in range(r.choice((2, 3, 4)))]
    smaller = [[1 if r.random() < 0.3 else n for n in shape][r.choice((0, 0, 1)) :] for _ in range(count)]
    return [laid_out(r, s) for s in smaller]


def picked(r: Random) -> tuple[Tensor, list[Tensor | None]]:
    x, shape = laid_out(r, [3, 3, 2]), [r.choice((1, 2, 3)) for _ in range(r.choice((1, 2)))]
    at = r.sample(range(3), r.choice((1, 2, 3)))
    smaller = [[1 if r.random() < 0.3 else n for n in shape] for _ in range(3)]
    return x, [laid_out(r, smaller[i], torch.int64) if i in at else None for i in range(3)]


def walked(strides: Sequence[int], shape: Sequence[int]) -> list[int]:
    """The strides of axes that have more than one element."""
    return [s for s, n in zip(strides, shape, strict=True) if n > 1]


def results(r: Random) -> Iterator[tuple[Tensor, Sequence[int], Any]]:
    """What eager gives, the strides that are expected of it, and what it was made from."""
    for functions, count in ((TWO, 2), (THREE, 3)):
        for fn in functions:
            given = operands(r, count)
            if fn is torch.where:
                given[0] = given[0] > 0
            out = fn(*given)
            yield out, iterated(out.shape, given), (fn, given)
    x, indices = picked(r)
    out = torch.ops.aten.index.Tensor(x, indices)
    yield out, indexed(x, indices), indices


def test_strides_are_those_of_eagers_loops() -> None:
    r = Random(0)
    for _ in range(200):
        for out, strides, made in results(r):
            assert walked(strides, out.shape) == walked(out.stride(), out.shape), made


def expected(fn: Any, *args: Tensor) -> None:
    """The captured graph has eager's strides."""
    made, graph = fn(*args), capture(fn, args).graph
    found = [int(s) for s in graph.values[graph.outputs[0]].strides if isinstance(s, int)]
    assert walked(found, made.shape) == walked(made.stride(), made.shape)


def test_an_index_has_the_layout_of_its_result() -> None:
    i = torch.zeros(3, 2, dtype=torch.int64).t()
    expected(lambda x, i: x[i].abs(), torch.ones(1, 1).as_strided((1, 1), (6, 2)), i)
    expected(lambda x, i: x[:, i] + 1, torch.ones(4, 5), i)
    expected(lambda x, i: x[i[0], :, i[1]] + 1, torch.ones(4, 5, 6), i)


def test_an_operand_of_another_type_is_copied_first() -> None:
    x, n = (
        torch.ones(1, 1, 2, 3).as_strided((1, 1, 2, 3), (1, 2, 1, 0)),
        torch.ones(5, 2, 3, dtype=torch.int64),
    )
    expected(lambda x, n: torch.addcdiv(x.abs(), n, x), x, n)
    expected(lambda x, n: torch.addcmul(n, x, x), x.half(), n)


def test_a_tensor_with_gaps_that_the_program_made_keeps_them() -> None:
    x = torch.ones(4, 16)[:, ::2]
    expected(lambda x: torch.slice_scatter(x, x[::2] * 2, 0, step=2).sigmoid_(), x)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("unique", [torch.unique, torch.unique_consecutive])
def test_distinct_slices_are_stacked(unique, dim) -> None:
    """Of three axes and of axes in another order; `contiguous` after it copies, as in eager."""
    for x in (
        torch.arange(60).reshape(3, 4, 5) % 7,
        (torch.arange(60).reshape(3, 4, 5) % 7).permute(2, 0, 1),
    ):
        captured = capture(lambda x: (unique(x, dim=dim), unique(x, dim=dim).contiguous()), (x,))
        run = captured.program.module()
        for mine, theirs in zip(run(x), captured.fn(x), strict=True):
            assert mine.stride() == theirs.stride() and torch.equal(mine, theirs)
