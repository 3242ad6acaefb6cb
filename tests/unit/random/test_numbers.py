"""The numbers themselves: the generator against its authors' vectors, every kernel against plain integers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.unit.random import reference

import fusebound as fb
from fusebound.analysis import philox
from fusebound.codegen import lower
from fusebound.codegen.build import compile_group
from fusebound.ir.builder import Builder
from fusebound.ir.spec import verify
from fusebound.runtime.launch import launcher
from fusebound.target import get

VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]  # fmt: skip
"""Known answers of Random123 (kat_vectors, philox4x32 10)."""


@pytest.mark.parametrize(("counter", "key", "words"), VECTORS)
def test_known_answers(
    counter: tuple[int, int, int, int], key: tuple[int, int], words: tuple[int, ...]
) -> None:
    assert reference.philox(counter, key) == words
    arrays = tuple(np.array([c], np.uint64) for c in counter)
    found = philox.block(arrays, key)  # pyright: ignore[reportArgumentType]
    assert tuple(int(w[0]) for w in found) == words


def _word(shape: tuple[int, ...], which: int, seed: int) -> list[int]:
    """Word `which` of every element, by a kernel of its own."""
    b = Builder("bits")
    b.begin("draw")
    word = b.random(shape, 4)[which]
    b.end("aten.randint.low", (), (), (word,), "random")
    g = b.finish((word,))
    verify(g)
    kernel = compile_group(g, [g.producer[word].id], get("host"), name=f"word{which}")
    out = torch.empty(shape, dtype=torch.int32)
    launcher(kernel, 1)(torch.tensor(seed), out)
    return out.flatten().tolist()


@pytest.mark.parametrize("shape", [(1,), (15,), (3, 17), (2, 3, 33)])
@pytest.mark.parametrize("seed", [0, 0x0123456789ABCDEF, (1 << 63) - 1])
def test_kernels_give_every_word(shape: tuple[int, ...], seed: int) -> None:
    blocks = reference.words(seed, 0, math.prod(shape))
    for which in range(4):
        assert _word(shape, which, seed) == [reference.signed(block[which]) for block in blocks]


def test_counters_beyond_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An element's place counts in 64 bits: here the kernel's counters start at 2³² - 5."""
    start = (1 << 32) - 5
    counter = lower._Lowering._counter
    monkeypatch.setattr(lower._Lowering, "_counter", lambda *a: counter(*a) + start)
    blocks = [
        reference.philox(((start + i) & reference.MASK, start + i >> 32, 0, 0), (7, 0)) for i in range(23)
    ]
    assert _word((23,), 0, 7) == [reference.signed(block[0]) for block in blocks]


def drawn(fn: Callable[..., torch.Tensor], *args: torch.Tensor) -> tuple[torch.Tensor, int]:
    """A function's result, and the seed that its call drew."""
    exe = fb.build(fb.plan(fb.capture(fn, *args), hardware="cpu-avx512"))
    torch.manual_seed(reference.SEED)
    seed = reference.seed_of_next_call()
    return exe(*args), seed


def test_dropout_by_plain_integers() -> None:
    x = torch.randn(7, 33)
    got, seed = drawn(lambda x: F.dropout(x, 0.3, True) + 1, x)
    mask = reference.keep(seed, 0, (7, 33), 0.7)
    torch.testing.assert_close(got, x * (mask.float() / 0.7) + 1)


def test_uniform_by_plain_integers() -> None:
    x = torch.randn(7, 33)
    got, seed = drawn(lambda x: torch.rand_like(x) + x, x)
    torch.testing.assert_close(got, reference.uniform(seed, 0, (7, 33)) + x, rtol=0, atol=0)


def test_normal_by_plain_integers() -> None:
    got, seed = drawn(lambda: torch.randn(40, 25))
    want = reference.normal(seed, 0, (40, 25))
    ulp = want.abs().log2().floor().exp2() * 2.0**-23
    assert float(((got.double() - want).abs() / ulp).max()) <= 4


def test_integers_by_plain_integers() -> None:
    got, seed = drawn(lambda: torch.randint(-3, 9, (11, 5)))
    assert torch.equal(got, reference.integers(seed, 0, (11, 5), -3, 9))


def test_draws_are_numbered_in_program_order() -> None:
    x = torch.randn(3, 9)
    got, seed = drawn(lambda x: torch.rand_like(x) - 2 * torch.rand_like(x), x)
    torch.testing.assert_close(
        got, reference.uniform(seed, 0, (3, 9)) - 2 * reference.uniform(seed, 1, (3, 9))
    )


def test_place_is_the_logical_one() -> None:
    """A value that is read transposed, sliced and flipped keeps the numbers of its own row-major places."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.rand(12, 20).t()[3:, 1:].flip(0) * x

    x = torch.ones(17, 11)
    got, seed = drawn(fn, x)
    assert torch.equal(got, reference.uniform(seed, 0, (12, 20)).t()[3:, 1:].flip(0))


def test_the_tile_program_shows_the_draw() -> None:
    exe = fb.build(fb.plan(fb.capture(lambda x: F.dropout(x, 0.5, True), torch.ones(4, 6)), policy="none"))
    assert "random(t1, draw 0, i1)[0] : int32  # dropout_draw" in exe.kernels[0].source
