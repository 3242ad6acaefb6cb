"""The short way through a compiled function: C++ guards on a specialization's tensors, then its steps.

A route exists for calls with positional tensors and constants only. Whatever it does not recognise takes the long
way of `compile`, which builds the full key; a route can therefore be strict and simple.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusebound.capture.torch import Captured
from fusebound.engine import guards
from fusebound.engine.surroundings import Surroundings
from fusebound.runtime.binding import binder, result
from fusebound.runtime.executable import Executable
from fusebound.runtime.private import plain_dispatch, state_check, tensor_check

GROWTH = 4
"""A function for which eager is faster is judged anew on calls that are this many times larger."""


@dataclass(frozen=True, slots=True)
class Route:
    """A recognised kind of call. `admits(args)` is exact for what it accepts; `run(args)` needs an admitted call."""

    admits: Callable[[tuple[Any, ...]], bool]
    run: Callable[[tuple[Any, ...]], Any]


def make(
    around: Surroundings, captured: Captured, executable: Executable, written: Sequence[int],
    args: tuple[Any, ...],
) -> Route | None:  # fmt: skip
    """The route of a specialization, or None for a call that no route can recognise.

    `around` is what its key was made from: while that holds, the key is the same.
    """
    if not all(isinstance(a, torch.Tensor) or guards.constant_key(a) for a in args):
        return None
    getters = [captured.state[i.value] for i in captured.graph.inputs if i.kind != "user"]
    admits = _admission(around, args, getters)
    if admits is None:
        return None
    bind, finish, run = binder(captured), result(captured), executable.run_plain
    overlapping = executable.overlapping

    def apart(given: tuple[Any, ...]) -> bool:
        return admits(given) and not overlapping(bind(given))

    return Route(apart if written else admits, lambda given: finish(run(bind(given))))


def not_larger(args: tuple[Any, ...]) -> Callable[[tuple[Any, ...]], bool]:
    """Whether a call is at most `GROWTH` times as large, judged by the argument that is largest here (any call where
    no argument is a tensor itself)."""
    sizes = [(a.numel(), i) for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
    if not sizes:
        return lambda given: True
    size, place = max(sizes)
    limit = GROWTH * size

    def admits(given: tuple[Any, ...]) -> bool:
        try:
            return given[place].numel() <= limit
        except (AttributeError, IndexError):
            return False

    return admits


def _admission(
    around: Surroundings, args: tuple[Any, ...], getters: Sequence[Callable[[], Any]]
) -> Callable[[tuple[Any, ...]], bool] | None:
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    same = len({id(t) for t in tensors}) == len(tensors)
    check = tensor_check([*tensors, *(g() for g in getters)])
    state = state_check()
    if check is None or state is None or not same:
        return None
    count = len(args)
    holds = around.holds
    constants = [(i, a) for i, a in enumerate(args) if not isinstance(a, torch.Tensor)]
    if not constants and not getters:

        def bare(given: tuple[Any, ...]) -> bool:
            return (
                len(given) == count and _dense(given) and check(*given)
                and state() and plain_dispatch() and holds()
            )  # fmt: skip

        return bare
    places = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]

    def full(given: tuple[Any, ...]) -> bool:
        if len(given) != count or any(given[i] is not c for i, c in constants):
            return False
        own = [given[i] for i in places]
        return (
            _dense(own)
            and check(*own, *(g() for g in getters)) and state() and plain_dispatch() and holds()
        )  # fmt: skip

    return full


def _dense(given: Sequence[Any]) -> bool:
    """Whether all are tensors that the C++ check may look at: it aborts on nested ones."""
    try:
        return not any(map(_nested, given))
    except AttributeError:
        return False


_nested = operator.attrgetter("is_nested")
