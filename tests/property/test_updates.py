"""Random programs of updates through tensors and their views: compiled, they leave what eager leaves.

`FB_EXAMPLES=500 pytest tests/property/test_updates.py` looks further.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from random import Random
from typing import Any

import torch
from hypothesis import strategies as st
from tests.property.counting import counted

from fusebound.engine.compile import EagerNotice, Options, compile

EXAMPLES = int(os.environ.get("FB_EXAMPLES", "0")) // 5 or 8
OPTIONS = Options(contest=False, expected_calls=10**9, hardware="cpu-avx512")
FOREACH: Any = torch
Step = Callable[[list[torch.Tensor]], Any]


def program(r: Random) -> list[tuple[str, int, int, int]]:
    """Steps as (what, on which value, with which other value, a number)."""
    return [
        (r.choice(STEPS), r.randrange(99), r.randrange(99), r.randrange(1, 4))
        for _ in range(r.randrange(2, 9))
    ]


STEPS = [
    "add",
    "mul",
    "where",
    "row",
    "column",
    "transpose",
    "flat",
    "add_",
    "mul_",
    "copy_",
    "clamp_",
    "fill_",
    "sum",
    "shift",
    "mirror",
    "rotate",
    "softmax_",
    "index_put_",
    "gather",
    "lists",
]
"""Results, views (row, column, transpose, flat) and updates, some from moved or gathered points of their target."""


def run(steps: list[tuple[str, int, int, int]], x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """Every value that the steps make; the inputs are updated in place."""
    values = [x, y]
    for what, a, b, k in steps:
        v = values[a % len(values)]
        alike = [w for w in values if w.shape == v.shape]
        w = alike[b % len(alike)]
        made = apply(what, v, w, k)
        if made is not None:
            values.append(made)
    return values[2:]


def apply(what: str, v: torch.Tensor, w: torch.Tensor, k: int) -> torch.Tensor | None:
    match what:
        case "add":
            return v + w
        case "mul":
            return v * k - 1
        case "where":
            return torch.where(v > w, v, w - 1)
        case "row":
            return v[k % v.shape[0] :] if v.dim() else None
        case "column":
            return v.select(-1, k % v.shape[-1]) if v.dim() > 1 else None
        case "transpose":
            return v.mT if v.dim() > 1 else None
        case "flat":
            return v.reshape(-1)
        case "sum":
            return v - v.sum(-1, keepdim=True) if v.dim() else None
        case "add_":
            v.add_(w)
        case "mul_":
            v.mul_(k).sub_(1)
        case "copy_":
            v.copy_(w * 2)
        case "shift":
            if v.dim():
                v[k:] = v[:-k] + 1
        case "mirror":
            v.sub_(w.flip(-1) if v.dim() else w)
        case "rotate":
            v.mul_(v.roll(k, 0) if v.dim() else 2).clamp_(-9, 9)
        case "softmax_":
            v.sub_(v.amax()).clamp_(min=-3)
        case "index_put_":
            if v.dim():
                v.index_put_((torch.arange(k) % 2,), v[:k].flip(0) + 1, accumulate=v.dim() == 2)
        case "gather":
            return v[torch.arange(5) % k % v.shape[0]] * 2 if v.dim() else None
        case "lists":
            FOREACH._foreach_add_([v, w], [w, v.clone()])
        case "clamp_":
            v.clamp_(-k, k)
        case _:
            v.fill_(k)
    return None


def test_updates() -> None:
    assert counted(has_kernel, st.integers(0, 2**40), st.booleans(), examples=EXAMPLES) >= EXAMPLES * 2 // 3


def has_kernel(seed: int, transposed: bool) -> bool:
    """Whether the compiled program of a seed runs a kernel; asserts that it leaves what eager leaves."""
    steps = program(Random(seed))

    def fn(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return run(steps, x, y)

    compiled = compile(fn, OPTIONS)
    for _ in range(2):
        mine, theirs = arguments(seed, transposed), arguments(seed, transposed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EagerNotice)
            got = [*mine, *compiled(*mine)]
        want = [*theirs, *fn(*theirs)]
        assert [t.shape for t in got] == [t.shape for t in want]
        for a, b in zip(got, want, strict=True):
            assert torch.equal(a, b), steps
        assert storages(got) == storages(want), steps
    return compiled.executable is not None and bool(compiled.executable.kernels)


def arguments(seed: int, transposed: bool) -> list[torch.Tensor]:
    """Small integers, so that every order of adding gives the same bits."""
    g = torch.Generator().manual_seed(seed % 2**31)
    x, y = (torch.randint(-3, 4, (5, 17), generator=g).float() for _ in range(2))
    return [x.t().contiguous().t() if transposed else x, y]


def storages(tensors: list[torch.Tensor]) -> list[int]:
    """A number for each tensor that is equal for those in one storage."""
    seen: dict[int, int] = {}
    return [seen.setdefault(t.untyped_storage()._cdata, len(seen)) for t in tensors]
