"""The measured gate for a whole function: both forms run on the user's inputs, the slower one is dropped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fusebound.capture.torch import Captured
from fusebound.runtime.executable import Executable

ROUNDS = 5
BUDGET_S = 0.3
"""Time after which no further round starts: a function this slow is decided by fewer rounds."""


def loses(exe: Executable, captured: Captured, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the executable's best time is above eager's best, in interleaved rounds.

    Functions that draw random numbers are not run twice: the caller's generator would move.
    """
    if any(u.kind == "random" for u in captured.graph.user_ops):
        return False
    fused, eager = (lambda: exe(*args, **kwargs)), (lambda: captured.fn(*args, **kwargs))
    best = [float("inf"), float("inf")]
    start = time.perf_counter()
    with torch.no_grad():
        for _ in range(ROUNDS):
            for i, f in enumerate((fused, eager)):
                best[i] = min(best[i], _time(f))
            if time.perf_counter() - start > BUDGET_S:
                break
    return best[0] > best[1]


def _time(f: Callable[[], Any]) -> float:
    start = time.perf_counter()
    f()
    return time.perf_counter() - start
