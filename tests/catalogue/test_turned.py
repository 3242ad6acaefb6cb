"""Memory that lies along another axis than the vectors: tiles that are turned, and elements a few apart that are
shuffled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.catalogue.harness import check, rand, special

from fusebound.codegen import tile

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int8, torch.bool]


def tokens(x: torch.Tensor, first: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    y = torch.cat((first, x.transpose(1, 2)), 1)
    return y ^ place if y.dtype == torch.bool else y + place


def back(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x ^ True if x.dtype == torch.bool else x + x
    return y, y.transpose(-1, -2).contiguous()


def norm(
    x: torch.Tensor, s: torch.Tensor, w: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    y = x + x * s.reshape(-1, 1, 1)
    return y, F.layer_norm(y.permute(0, 2, 3, 1), w.shape, w, b)


def interleaved(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.stack((x, y), -1) * 2


def twice(x: torch.Tensor) -> torch.Tensor:
    return (x ^ True) | x if x.dtype == torch.bool else (x + 1) * x


def pixels(x: torch.Tensor) -> torch.Tensor:
    return (x.permute(0, 3, 1, 2).contiguous().float() - 3) / 5


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("channels", "size"), [(8, 3), (9, 4), (37, 7), (64, 8), (130, 5), (3000, 4)])
def test_pixels_become_rows(dtype: torch.dtype, channels: int, size: int) -> None:
    x = rand(2, channels, size * size, dtype=dtype)
    check(
        tokens,
        x,
        rand(2, 1, channels, dtype=dtype, seed=1),
        rand(size * size + 1, channels, dtype=dtype, seed=2),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(8, 8), (3, 17, 40), (2, 33, 31), (9, 100), (5, 7, 200), (16, 2100)])
def test_a_result_in_both_orders(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    check(back, rand(*shape, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize(("channels", "size"), [(12, 3), (40, 7), (96, 9), (768, 4)])
def test_a_norm_over_channels(
    dtype: torch.dtype, layout: torch.memory_format, channels: int, size: int
) -> None:
    x = rand(2, channels, size, size, dtype=dtype).to(memory_format=layout)
    check(norm, x, *(rand(channels, dtype=dtype, seed=i) for i in range(3)))


def test_special_values_are_turned() -> None:
    check(norm, special(1, 40, 9, 9), *(special(40, seed=i) for i in range(3)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [1, 3, 16, 40, 129])
def test_pairs_are_interleaved(dtype: torch.dtype, columns: int) -> None:
    if dtype != torch.bool:
        check(interleaved, rand(5, columns, dtype=dtype), rand(5, columns, dtype=dtype, seed=1))
    check(twice, rand(5, 2 * columns, dtype=dtype)[:, 1::2])


@pytest.mark.parametrize("channels", [2, 3, 4, 5])
def test_the_colours_of_pixels(channels: int) -> None:
    x = torch.arange(2 * 7 * 37 * channels, dtype=torch.uint8).reshape(2, 7, 37, channels)
    check(pixels, x)
    check(lambda x: pixels(x)[:, ::2] * 2, x)


def test_the_last_elements_that_lie_apart_end_their_memory() -> None:
    """Whole vectors are read, but nothing behind the last element."""
    for apart in (2, 3, 4):
        whole = rand(64 * apart)
        check(lambda x: x * 2 + 1, whole[: 64 * apart - apart + 1 : apart], kernels=1)


def test_written_in_place() -> None:
    def step(w: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return w.mul_(0.9).add_(g.t())

    check(step, rand(40, 100), rand(100, 40, seed=1))
    check(step, rand(40, 100).t(), rand(100, 40, seed=1).t())


def test_an_input_that_is_read_apart_is_not_written_by_turned_tiles() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        v = x.float()
        x.sub_(x)
        y = v.masked_fill(v > 3, 3)
        return y - y.flip(1)

    check(program, rand(16, 33, dtype=torch.int32))

    def turned(x: torch.Tensor) -> torch.Tensor:
        y = x.t() * 2
        x.mul_(3)
        return y.contiguous()

    check(turned, rand(20, 33))


@pytest.mark.parametrize("first", [1, 16, 64, 129])
def test_rows_of_which_a_part_is_turned(first: int) -> None:
    def joined(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat((y, x.t() * 2), 1) + 1

    check(joined, rand(50, 40), rand(40, first, seed=1))


def test_tiles_are_turned() -> None:
    compiled = check(norm, rand(1, 64, 8, 8), *(rand(64, seed=i) for i in range(3)))
    assert compiled.executable is not None
    (program,) = (k.program for k in compiled.executable.kernels)
    turns = [s for nest in program.nests for s in tile.statements(nest.body) if isinstance(s, tile.Turn)]
    assert [program.params[t.param].written for t in turns] == [False, True]


def column_norm(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.tanh(x) * torch.erf(x), 0) + torch.sigmoid(x).amax(0)


def column_statistics(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    return y.mean(0), y.amax(0), y.argmin(0), (y > 1).any(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("fn", [column_norm, column_statistics])
@pytest.mark.parametrize("shape", [(9, 127), (7, 128), (33, 191), (130, 200), (5, 1000), (3, 17, 300)])
def test_columns_side_by_side(
    fn: Callable[..., torch.Tensor], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    check(fn, rand(*shape, dtype=dtype))


def test_special_values_in_columns() -> None:
    check(column_norm, special(40, 256))
