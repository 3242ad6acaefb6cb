"""The measured gate: kernels run against the operators that they replace, on the user's inputs; losers go."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fusebound.capture.overlap import same_layout_copy
from fusebound.capture.torch import Captured
from fusebound.plan.dissolve import Measured
from fusebound.runtime.executable import Executable

ROUNDS = 5
MORE_ROUNDS, SHORT_S = 25, 0.005
"""Rounds for a whole function, as long as they take no more than this."""
BUDGET_S = 0.3
"""Time after which no further round starts: what is this slow is decided by fewer rounds."""


def contest(
    exe: Executable, captured: Captured, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Measured]:
    """Best times in microseconds of every kernel group and of its operators through the framework, interleaved.

    What the function writes is copied first, and the random generator is put back: the user's call comes after.
    Groups that write into an input are left out. Raises what eager raises on these inputs.
    """
    inputs = captured.bind(args, kwargs)
    found: dict[str, Measured] = {}
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        # The whole plan first: it raises what eager raises, while the steps of a duel raise in the plan's order.
        exe.run_plain(_expendable(captured, inputs))
        for group, fused, eager in exe.duels(_expendable(captured, inputs)):
            mine, theirs = _interleaved((fused, eager))
            found[group] = Measured(min(mine) * 1e6, min(theirs) * 1e6)
    return found


def _expendable(captured: Captured, inputs: Sequence[Any]) -> list[Any]:
    """The inputs, with copies of the same layout in the place of those that the function writes."""
    targets = {m.target for m in captured.graph.mutations}
    given = zip(captured.graph.input_ids, inputs, strict=True)
    return [same_layout_copy(t) if v in targets else t for v, t in given]


def loses(
    fused: Callable[[], Any], captured: Captured, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> bool:
    """Whether the compiled form's best time is above the function's second best, under the caller's gradient mode,
    which its guards know; the random generator is put back.

    Each kernel has won its own contest. What calls of the function itself differ by is no evidence against that: in a
    large model a gain of some percent is less than a call's noise.
    """
    with torch.random.fork_rng(devices=[]):
        mine, theirs = _interleaved((fused, lambda: captured.fn(*args, **kwargs)), MORE_ROUNDS)
    return min(mine) > sorted(theirs)[:2][-1]


def _interleaved(forms: Sequence[Callable[[], Any]], more: int = ROUNDS) -> list[list[float]]:
    """Seconds of each form over some rounds, the first of which only warms up and is left out."""
    times: list[list[float]] = [[] for _ in forms]
    start = time.perf_counter()
    for round in range(more + 1):
        for f, taken in zip(forms, times, strict=True):
            taken.append(_time(f))
        spent = time.perf_counter() - start
        if round and spent > (BUDGET_S if round < ROUNDS else SHORT_S):
            break
    return [taken[1:] for taken in times]


def _time(f: Callable[[], Any]) -> float:
    start = time.perf_counter()
    f()
    return time.perf_counter() - start
