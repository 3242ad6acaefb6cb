"""In-place writes to parts of an argument: the kernel stores the part alone, straight into the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.catalogue.harness import FOREVER, PLANNED_FOR, check, rand

import fusebound as fb
from fusebound.engine.compile import Options, compile


def column(x: torch.Tensor) -> None:
    x[:, 0].mul_(2).add_(1)


def cache(x: torch.Tensor, new: torch.Tensor) -> None:
    x[:, 7].copy_(new * 2 + 1)


def several(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x[:, 0].mul_(2)
    x[5].copy_(w)
    return x[:8].exp()


def box(x: torch.Tensor) -> None:
    x[1:3, 2:9].mul_(3).add_(1)


def old_and_new(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    x[:, 0].mul_(3).add_(1)
    return y + x


def itself(x: torch.Tensor) -> None:
    x[:, 0].copy_(x[:, 0])
    x[:, 1].mul_(2).add_(1)


def nothing_new(x: torch.Tensor) -> torch.Tensor:
    x[:, 0].copy_(x[:, 0])
    return (x * 2).exp()


def turned(x: torch.Tensor) -> None:
    x.t()[3:5].mul_(2).add_(1)


def half(x: torch.Tensor) -> None:
    a, b = x.chunk(2, -1)
    a.mul_(2).add_(b)


def by_another_part(x: torch.Tensor) -> None:
    x[:, 0].mul_(2).add_(x[:, 1])
    x[:, 1].mul_(3).add_(x[:, 0])


def by_a_row_that_is_written(x: torch.Tensor) -> None:
    x[:, 0].add_(x[0] * 2)
    x[1].add_(x[:, 0] * 2)


ONE = [column, box, old_and_new, itself, nothing_new, turned, half, by_another_part, by_a_row_that_is_written]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("fn", ONE)
def test_a_part_of_an_argument(fn: Callable[..., Any], dtype: torch.dtype) -> None:
    x = (rand(40, 40) * 9).to(dtype)
    same(fn, x)
    same(fn, x.t())
    same(fn, (rand(40, 80) * 9).to(dtype)[:, ::2])


def same(fn: Callable[..., Any], *args: torch.Tensor) -> Any:
    """A call of the compiled function does what eager does, at the second call as well."""
    compiled = compile(fn, Options(contest=False, expected_calls=FOREVER, hardware=PLANNED_FOR))
    bases = [torch.empty_strided(a.shape, a.stride(), dtype=a.dtype).copy_(a) for a in args]
    mine, theirs = ([torch.clone(b, memory_format=torch.preserve_format) for b in bases] for _ in range(2))
    for _ in range(2):
        got, want = compiled(*mine), fn(*theirs)
        torch.testing.assert_close(got, want) if want is not None else None
        assert all(torch.allclose(a, b, rtol=1e-2) for a, b in zip(mine, theirs, strict=True))
    return compiled


def read_in_two_pieces(x: torch.Tensor) -> torch.Tensor:
    """Both pieces are made of the same elements, which the first loop writes."""
    x.exp_()
    y = (x * 3 - 1) * 3
    return torch.cat((y, y), -1)


@pytest.mark.parametrize("shape", [(1,), (7,), (5, 9)])
def test_what_several_loops_read_is_not_written_by_the_first(shape: tuple[int, ...]) -> None:
    same(read_in_two_pieces, rand(*shape))


def test_what_is_stored() -> None:
    compiled = check(cache, rand(64, 32, 40), rand(64, 40, seed=1))
    (kernel,) = compiled.executable.kernels
    assert kernel.partial == kernel.in_place == {"select_scatter": "x"}
    assert compiled.executable.copied_back == {}
    assert sum(g.bytes_after for g in compiled.plan.groups) == 2 * 64 * 40 * 4


def test_two_parts_and_a_reader() -> None:
    compiled = same(several, rand(64, 50), rand(50, seed=1))
    assert compiled.executable.copied_back == {}


def test_eager_moves_no_whole_tensor_for_a_part() -> None:
    """The second half of `x[:, 0].mul_(2)` is a whole new tensor in the graph, and nothing in eager."""
    x = rand(512, 512)
    made = fb.plan(fb.capture(column, x), hardware="cpu-avx512")
    assert sum(g.launches_before for g in made.groups) == 2
    assert sum(g.bytes_before for g in made.groups) == 4 * 512 * 4


def test_a_plan_that_copies_what_eager_writes_in_place_is_not_built() -> None:
    def every_second(x: torch.Tensor) -> None:
        x[::2].mul_(2).add_(1)

    x = rand(2000, 500)
    compiled = fb.compile(every_second)
    compiled(x)
    assert compiled.executable is None and "writes parts of tensors in place" in compiled.reason
