"""The short way through a compiled function: C++ guards on a specialization's tensors, then its steps.

A route exists for calls with positional tensors and constants only. Whatever it does not recognise takes the long
way of `compile`, which builds the full key; a route can therefore be strict and simple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusebound.capture.overlap import disjoint, extent, folds
from fusebound.capture.torch import Captured
from fusebound.engine import guards
from fusebound.engine.places import Surroundings
from fusebound.runtime.binding import binder, result
from fusebound.runtime.executable import Executable
from fusebound.runtime.private import state_check, tensor_check, written_plain_dispatch

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
    overlapping, lengths = executable.overlapping, _lengths(bind(args), written)

    def apart(given: tuple[Any, ...]) -> bool:
        if not admits(given):
            return False
        inputs = bind(given)
        return (lengths is not None and disjoint(inputs, lengths)) or not overlapping(inputs)

    return Route(apart if written else admits, lambda given: finish(run(bind(given))))


def _lengths(inputs: Sequence[Any], written: Sequence[int]) -> list[int] | None:
    """The bytes that each input spans; None where one is no tensor, or a written one may reach an element twice."""
    if not all(isinstance(t, torch.Tensor) for t in inputs) or any(folds(inputs[i]) for i in written):
        return None
    spans = map(extent, inputs)
    return [end - start for start, end in spans]


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
    """The guards of a call, written out as one expression: each takes less time than a call of a Python function."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    same = len({id(t) for t in tensors}) == len(tensors)
    check = tensor_check([*tensors, *(g() for g in getters)])
    state = state_check()
    if check is None or state is None or not same:
        return None
    own = [f"a{i}" for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
    constants = {i: a for i, a in enumerate(args) if not isinstance(a, torch.Tensor)}
    reached = {f"get{i}": g for i, g in enumerate(getters)}
    plain, modes = written_plain_dispatch()
    holds, places = around.written_out()
    scope = {"check": check, "state": state, "bare": around.asked.isdisjoint, **reached, **modes, **places}
    scope |= {f"c{i}": a for i, a in constants.items()}
    checked = ", ".join((*own, *(f"{g}()" for g in reached)))
    bare = [f"bare({a}.__dict__)" for a in own] if around.asked else []
    terms = (*(f"a{i} is c{i}" for i in constants), f"check({checked})", "state()", *plain, *bare, *holds)
    # The C++ check aborts on nested tensors.
    nested = f"""
    try:
        if {" or ".join(f"{a}.is_nested" for a in own)}: return False
    except Exception: return False"""
    text = f"""
def admits(given):
    if len(given) != {len(args)}: return False
    {"".join(f"a{i}, " for i in range(len(args)))}{"= given" if args else "pass"}{nested if own else ""}
    return {" and ".join(terms)}
"""
    exec(compile(text, "<fusebound: guards>", "exec"), scope)
    return scope["admits"]
