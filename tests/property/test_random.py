"""One seed gives one set of numbers, whatever is fused, however many threads run, however the inputs lie."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import fusebound as fb
from fusebound.api.origin import recall
from fusebound.engine.build import build

DTYPES = (torch.float32, torch.bfloat16, torch.float64)


def draws(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Draws fused with moves and reductions, read twice, and broadcast."""
    kept = F.dropout(x, 0.3, True)
    rows = torch.rand(x.shape[0], 1)
    return kept + y, kept.sum(-1), (rows * y).flip(0), torch.rand_like(y).t() * 2, kept == 0


@settings(max_examples=5, deadline=None, derandomize=True)
@given(
    rows=st.sampled_from([1, 7, 65]),
    columns=st.sampled_from([1, 17, 33, 1025]),
    dtype=st.sampled_from(DTYPES),
    transposed=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_one_seed_one_mask(rows: int, columns: int, dtype: torch.dtype, transposed: bool, seed: int) -> None:
    shape = (columns, rows) if transposed else (rows, columns)
    x, y = (torch.ones(shape, dtype=dtype) for _ in range(2))
    x, y = (x.t(), y.t()) if transposed else (x, y)
    graph = fb.capture(draws, x, y)
    results = []
    for policy in ("none", "elementwise", "tile"):
        plan = fb.plan(graph, policy=policy, hardware="cpu-avx512")
        for threads in (1, 2):
            exe = build(plan, recall(graph), threads=threads)
            torch.manual_seed(seed)
            results.append(exe(x, y))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)
        assert torch.equal(results[0][4], other[4])
        assert torch.equal(results[0][3], other[3])
