"""The declared order of additions is the one that the built kernel has, seen from outside."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache

import pytest
import torch
import torch.nn.functional as F
import torch.signal.windows as windows
from tests.unit.codegen.trees import Probe, Triple, batched, canonical, recover

from fusebound.capture.torch import capture
from fusebound.codegen.build import Kernel, compile_group
from fusebound.codegen.order import Order, Tree
from fusebound.engine.build import build
from fusebound.plan.greedy import plan
from fusebound.runtime.launch import launcher
from fusebound.target import get

HUGE = 2.0**60
"""Swallows a 1 in float64 too; its square is still a float32."""
TINY = 0.75 * 2.0**-53
"""Lost beside a 1 in float64, and two of them together are not."""
ROWS = 8


def built(
    fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> tuple[Kernel, Callable[..., torch.Tensor]]:
    """One kernel of a whole function, and a call of it."""
    graph = capture(fn, (x,)).graph
    kernel = compile_group(graph, [n.id for n in graph.nodes], get("host"), name="k")
    launch = launcher(kernel, x.numel(), 1)
    out = graph.values[graph.outputs[0]]

    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty([int(d) for d in out.shape], dtype=x.dtype)
        launch(x, y)
        return y

    return kernel, call


def free(triple: Triple) -> list[int]:
    """Two places of a row that a question does not touch."""
    return [p for p in range(5) if p not in triple][:2]


def cancelling(call: Callable[..., torch.Tensor], dtype: torch.dtype, told_by: str):
    """i and j cancel, and k is swallowed unless it joins after them."""

    def ask(x: torch.Tensor, questions) -> torch.Tensor:
        for row, (i, j, k) in zip(x, questions, strict=True):
            row[i], row[j], row[k] = HUGE, -HUGE, 1.0
        y = call(x.to(dtype))
        if told_by == "zeros":  # what a zero becomes shows the mean
            y = torch.stack([row[free(q)[0]] for row, q in zip(y, questions, strict=True)])
        return y != 0

    return ask


def lifting(call: Callable[..., torch.Tensor], dtype: torch.dtype):
    """k is 1, i and j are lost beside it one by one; in float32 two helpers bring the sum to a tie of rounding."""
    helpers = tie() if dtype == torch.float32 else (-math.inf, -math.inf)

    def ask(x: torch.Tensor, questions) -> torch.Tensor:
        x.fill_(-math.inf)
        for row, (i, j, k) in zip(x, questions, strict=True):
            p, q = free((i, j, k))
            row[p], row[q] = helpers
            row[i], row[j], row[k] = math.log(TINY), math.log(TINY), 0.0
        y = call(x.to(dtype))
        return torch.stack([row[k] for row, (_, _, k) in zip(y, questions, strict=True)]) < 1

    return ask


@cache
def tie() -> tuple[float, float]:
    """Two float32 whose exponentials, as kernels compute them, add up to half an ULP of 1."""
    step = 2.0**-19  # of float32 from 16 to 32
    x = -(torch.arange(16.6 / step, 18.1 / step, dtype=torch.float64) * step).float()
    _, exp = built(torch.exp, x)
    e = (exp(x).double() * 2.0**48).tolist()
    place = {v: i for i, v in enumerate(e) if 2.0**22 <= v <= 2.0**24}
    i = next(i for v, i in place.items() if v == int(v) and 2.0**24 - v in place)
    return float(x[i]), float(x[place[2.0**24 - e[i]]])


CASES = {
    "sum": (lambda x: x.sum(-1), "result"),
    "mean": (lambda x: x.mean(-1), "result"),
    "layer norm's mean": (lambda x: F.layer_norm(x, x.shape[-1:]), "zeros"),
    "softmax's sum": (lambda x: F.softmax(x, -1), "softmax"),
}
"""Functions whose first sum is probed, and what shows it."""


def probe_of(case: str, n: int, dtype: torch.dtype) -> tuple[Order, Probe]:
    fn, told_by = CASES[case]
    kernel, call = built(fn, torch.zeros(ROWS, n, dtype=dtype))
    ask = lifting(call, dtype) if told_by == "softmax" else cancelling(call, dtype, told_by)
    return kernel.orders[0], batched(ROWS, ask, n)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [7, 9, 15, 16, 17, 65, 131])
def test_the_kernel_adds_in_the_declared_order(case: str, dtype: torch.dtype, n: int) -> None:
    order, probe = probe_of(case, n, dtype)
    assert order.elements == n
    assert recover(range(n), probe) == canonical(order.tree())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [3, 4])
def test_a_short_row_is_added_one_after_another(dtype: torch.dtype, n: int) -> None:
    """As eager does, so that what cancels leaves the same rest."""
    order, probe = probe_of("sum", n, dtype)
    chain: Tree = 0
    for i in range(1, n):
        chain = (chain, i)
    assert recover(range(n), probe) == canonical(order.tree()) == chain
    assert "the lanes one after another" in str(order)


@pytest.mark.parametrize("window", [windows.blackman, windows.nuttall])
@pytest.mark.parametrize("points", [2, 3, 4])
def test_windows_are_eager_s(window: Callable[..., torch.Tensor], points: int) -> None:
    """Sums of three and four terms of alternating signs, at the ends nearly nothing."""

    def fn(scale: torch.Tensor) -> torch.Tensor:
        return window(points, dtype=torch.float64) * scale

    one = torch.ones(1, dtype=torch.float64)
    captured = capture(fn, (one,))
    made = plan(captured.graph, target=get("cpu-avx512"), expected_calls=10**9)
    assert len(made.groups) < len(captured.graph.user_ops)
    assert torch.equal(build(made, captured, threads=1)(one), fn(one))


@pytest.mark.parametrize("case", CASES)
def test_a_long_row(case: str) -> None:
    """Of a row longer than a tile, the tree of some places."""
    n = 16_411
    some = sorted({0, 1, n - 1, n - 2, *random.Random(0).sample(range(n), 12)})
    order, probe = probe_of(case, n, torch.float32)
    assert recover(some, probe) == canonical(order.tree(some))


@pytest.mark.parametrize("shape", [(1 << 17) + 5, (7, 20_000)])
def test_chunks_of_a_row_are_added_one_after_another(shape: int | tuple[int, int]) -> None:
    n = math.prod(shape) if isinstance(shape, tuple) else shape
    kernel, call = built(lambda x: x.sum(), torch.zeros(shape))
    (order,) = kernel.orders
    chunks = kernel.program.parts[0].chunks
    assert chunks > 1 and order.elements == n and f"in {chunks} chunks" in str(order)

    def ask(x: torch.Tensor, questions) -> torch.Tensor:
        found: list[bool] = []
        for i, j, k in questions:
            row = torch.zeros(n)
            row[i], row[j], row[k] = HUGE, -HUGE, 1.0
            found.append(bool(call(row.view(shape)) != 0))
        return torch.tensor(found)

    block = n // chunks
    some = sorted({0, 1, 2, block, block + 1, block + 70, 2 * block, n - 1, n - 2, n - 20})
    probe = batched(ROWS, ask, 1)
    assert recover(some, probe) == canonical(order.tree(some))


def columns(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0)


def test_lanes_with_rows_of_their_own_add_one_after_another() -> None:
    n = 37
    kernel, call = built(columns, torch.zeros(n, 2 * ROWS))
    (order,) = kernel.orders

    def ask(x: torch.Tensor, questions) -> torch.Tensor:
        for row, (i, j, k) in zip(x, questions, strict=True):
            row[i], row[j], row[k] = HUGE, -HUGE, 1.0
        return call(torch.cat((x.t().float(), torch.zeros(n, ROWS)), 1))[:ROWS] != 0

    chain: Tree = 0
    for i in range(1, n):
        chain = (chain, i)
    assert recover(range(n), batched(ROWS, ask, n)) == canonical(order.tree()) == chain
    assert "one after another" in str(order)


def test_two_reduced_axes_are_swept_one_inside_the_other() -> None:
    outer, inner = 3, 71  # in vectors of 16 as of 8, several at once and some left
    kernel, call = built(lambda x: x.sum((0, 2)), torch.zeros(outer, ROWS, inner))
    (order,) = kernel.orders
    assert order.elements == outer * inner

    def ask(x: torch.Tensor, questions) -> torch.Tensor:
        for row, (i, j, k) in zip(x, questions, strict=True):
            row[i], row[j], row[k] = HUGE, -HUGE, 1.0
        return call(x.float().view(ROWS, outer, inner).transpose(0, 1).contiguous()) != 0

    assert recover(range(outer * inner), batched(ROWS, ask, outer * inner)) == canonical(order.tree())


def test_eager_s_order_is_another() -> None:
    """The probe tells orders apart: it recovers what the framework does as well, which is no tree of ours."""
    n = 100
    order, _ = probe_of("sum", n, torch.float32)
    eager = batched(ROWS, cancelling(lambda x: x.sum(-1), torch.float32, "result"), n)
    assert recover(range(n), eager) != canonical(order.tree())


def test_the_order_is_said() -> None:
    order, _ = probe_of("sum", 200, torch.float64)
    lanes = order.lanes
    assert order.copies == 4
    assert "sum of 200" in str(order) and f"4 vectors of {lanes} lanes" in str(order)
