"""What is drawn has the distribution that eager's has: moments, uniformity, independence, and the ends of the range.

Seeds are fixed, so a bound of five standard deviations cannot fail by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import fusebound as fb

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
N = 1 << 16


def sample(fn: Callable[[], torch.Tensor], seed: int = 1) -> torch.Tensor:
    exe = fb.build(fb.plan(fb.capture(fn), hardware="cpu-avx512"))
    assert exe.counted_draws
    torch.manual_seed(seed)
    return exe()


def chi_square(counts: torch.Tensor, expected: torch.Tensor | float) -> float:
    """The statistic of Pearson's test in its own standard deviations from its mean."""
    statistic = float(((counts - expected) ** 2 / expected).sum())
    freedom = counts.numel() - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


def kolmogorov(x: torch.Tensor, cdf: Callable[[torch.Tensor], torch.Tensor]) -> float:
    """√n · D of the Kolmogorov–Smirnov test: 1.95 is exceeded by chance once in a thousand times."""
    ordered = x.double().flatten().sort().values
    n = ordered.numel()
    steps = torch.arange(1, n + 1, dtype=torch.float64) / n
    f = cdf(ordered)
    return math.sqrt(n) * float(torch.maximum((steps - f).abs(), (f - steps + 1 / n).abs()).max())


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform(dtype: torch.dtype) -> None:
    x = sample(lambda: torch.rand(N, dtype=dtype))
    assert x.dtype == dtype
    assert float(x.min()) >= 0
    assert float(x.max()) < 1
    digits = {torch.float32: 24, torch.float64: 53, torch.bfloat16: 8, torch.float16: 11}[dtype]
    centred = x.double() + 2.0**-digits / 2
    assert abs(float(centred.mean()) - 0.5) < 5 / math.sqrt(12 * N)
    assert abs(float(centred.var()) - 1 / 12) < 5 / math.sqrt(180 * N)
    assert abs(chi_square(torch.histc(x.double(), 256, 0, 1), N / 256)) < 5
    if digits > 16:
        assert kolmogorov(x, lambda t: t) < 1.95


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_upper_end_is_never_drawn(dtype: torch.dtype) -> None:
    """1 + u rounds to 2 for the largest u: the lower end stands for it."""
    x = sample(lambda: torch.empty(N, dtype=dtype).uniform_(1.0, 2.0))
    assert float(x.min()) >= 1
    assert float(x.max()) < 2


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal(dtype: torch.dtype) -> None:
    x = sample(lambda: torch.randn(N, dtype=dtype)).double()
    assert torch.isfinite(x).all()
    assert abs(float(x.mean())) < 5 / math.sqrt(N)
    assert abs(float(x.var()) - 1) < 5 * math.sqrt(2 / N)
    assert abs(float((x**3).mean())) < 5 * math.sqrt(15 / N)
    assert abs(float((x**4).mean()) - 3) < 5 * math.sqrt(96 / N)
    if dtype in (torch.float32, torch.float64):
        assert kolmogorov(x, lambda t: 0.5 * torch.erfc(-t / math.sqrt(2))) < 1.95


def test_normal_with_mean_and_deviation() -> None:
    x = sample(lambda: torch.empty(N).normal_(3.0, 0.5)).double()
    assert abs(float(x.mean()) - 3) < 2.5 / math.sqrt(N)
    assert abs(float(x.std()) - 0.5) < 2.5 / math.sqrt(2 * N)


@pytest.mark.parametrize("p", [0.5, 0.1, 0.001, 1e-6])
@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout_keeps_with_its_probability(dtype: torch.dtype, p: float) -> None:
    exe = fb.build(fb.plan(fb.capture(lambda x: F.dropout(x, p, True), torch.ones(N, dtype=dtype))))
    torch.manual_seed(2)
    y = exe(torch.ones(N, dtype=dtype))
    dropped = int((y == 0).sum())
    assert abs(dropped - p * N) <= 5 * math.sqrt(p * (1 - p) * N) + 1e-9
    kept = y[y != 0]
    scale = (torch.ones((), dtype=dtype) / (1 - p)).item()
    assert float((kept.double() / scale - 1).abs().max()) <= torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", FLOATS)
def test_probabilities_0_and_1(dtype: torch.dtype) -> None:
    x = torch.randn(1000, dtype=dtype)
    for p, value in ((0.0, x), (1.0, torch.zeros_like(x))):
        exe = fb.build(fb.plan(fb.capture(lambda x, p=p: F.dropout(x, p, True) + 0, x)))
        assert torch.equal(exe(x), value)
    for p in (0.0, 1.0):
        assert (sample(lambda p=p: torch.empty(N, dtype=dtype).bernoulli_(p)) == p).all()


def test_bernoulli_with_a_probability_for_each() -> None:
    p = torch.linspace(0, 1, 64)[:, None].expand(64, 2048).contiguous()
    exe = fb.build(fb.plan(fb.capture(torch.bernoulli, p)))
    torch.manual_seed(4)
    share = exe(p).mean(1).double()
    assert ((share - p[:, 0]).abs() <= 5 * (p[:, 0] * (1 - p[:, 0]) / 2048).sqrt()).all()
    assert share[0] == 0
    assert share[-1] == 1


@pytest.mark.parametrize("bad", [1.5, -0.25, math.nan])
def test_what_is_no_probability_raises(bad: float) -> None:
    p = torch.rand(9, 33)
    exe = fb.build(fb.plan(fb.capture(torch.bernoulli, p)))
    p[8, 32] = bad
    for fn in (torch.bernoulli, exe):
        with pytest.raises(RuntimeError):
            fn(p)


def test_integers_are_uniform() -> None:
    x = sample(lambda: torch.randint(-3, 10, (N,)))
    assert abs(chi_square(torch.bincount(x + 3, minlength=13).double(), N / 13)) < 5


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    """The sample correlation in its standard deviations."""
    stacked = torch.stack((a.double().flatten(), b.double().flatten()))
    return float(torch.corrcoef(stacked)[0, 1]) * math.sqrt(a.numel())


def test_neighbours_rows_and_operators_are_independent() -> None:
    def fn() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.rand(256, 256), torch.rand(256, 256)

    exe = fb.build(fb.plan(fb.capture(fn)))
    torch.manual_seed(5)
    a, b = exe()
    again, _ = exe()
    pairs = [(a, b), (a, again), (a[1:], a[:-1]), (a[:, 1:], a[:, :-1]), (a[:, 16:], a[:, :-16])]
    for x, y in pairs:
        assert abs(correlation(x, y)) < 5
        assert float((x == y).float().mean()) < 1e-3
    grid = torch.histogramdd(torch.stack((a.flatten(), b.flatten()), 1), bins=[16, 16], range=[0.0, 1, 0, 1])
    assert abs(chi_square(grid.hist.flatten().double(), a.numel() / 256)) < 5
