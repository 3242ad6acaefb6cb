"""The ways to run a case, each compiled and compared with eager before anything is timed."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from torch.utils import _pytree as pytree

import fusebound as fb
from bench.suite.case import RATE, Arguments, Case
from bench.suite.into import Replay

SETTLED = 20
"""First calls of a case whose rate changes: more than any compiler makes kernels for single values."""


@dataclass(frozen=True, slots=True)
class Contender:
    """`call` runs the case once and returns its results; `written` are the arguments that it has changed so far.

    `note` (by default `str()`, nothing) says what a reader of the figures has to know: why fusebound runs eagerly,
    what still allocates.
    """

    call: Callable[[], Any]
    written: Callable[[], list[torch.Tensor]]
    note: Callable[[], str] = str


class Disagreement(Exception):
    """A contender's numbers are near neither eager's nor those in float64."""


def fused(case: Case, args: Arguments) -> Contender:
    """`fusebound.compile`."""
    compiled = fb.compile(case.fn)
    made = _on_own_memory(compiled, case, args)
    return replace(made, note=lambda: "" if compiled.executable else compiled.reason)


def eager(case: Case, args: Arguments) -> Contender:
    """The function itself."""
    return _on_own_memory(case.fn, case, args)


def into(case: Case, args: Arguments) -> Contender:
    """Its operators, into memory that has been used before; a learning rate stays the first one."""
    own = _own(case, args)
    replay = Replay(case.fn, own)
    note = ", ".join(replay.allocating)
    return Contender(replay, lambda: [own[i] for i in case.written], lambda: note)


def inductor(case: Case, args: Arguments) -> Contender:
    """`torch.compile`; fixed shapes, and a number that changes as its defaults have it."""
    torch._dynamo.reset()
    return _on_own_memory(torch.compile(case.fn, dynamic=None if case.last == "rate" else False), case, args)


def xla(case: Case, args: Arguments) -> Contender:
    """`jax.jit` of the same in `in_jax`; arguments that are changed are donated."""
    import jax

    from bench.suite import in_jax

    form = jax.jit(getattr(in_jax, case.name), donate_argnums=case.written)
    state = [in_jax.array(a) if isinstance(a, torch.Tensor) else a for a in args]
    rates, seeds = _rates(), count()

    def call() -> Any:
        if case.last == "rate":
            state[-1] = next(rates)
        results = form(*state, next(seeds)) if case.last == "probability" else form(*state)
        jax.block_until_ready(results)
        if not case.written:
            return results
        for position, value in zip(case.written, results, strict=True):
            state[position] = value
        return None

    return Contender(call, lambda: [in_jax.tensor(state[i]) for i in case.written])


MAKERS: dict[str, Callable[[Case, Arguments], Contender]] = {
    "fused": fused,
    "eager": eager,
    "into": into,
    "inductor": inductor,
    "xla": xla,
}


def missing() -> dict[str, str]:
    """Contenders that cannot run here, with the reason."""
    if importlib.util.find_spec("jax") is None:
        return {"xla": "jax is not installed (pip install -e '.[bench]')"}
    return {}


def ready(name: str, case: Case, args: Arguments) -> Contender:
    """The contender `name` for a case, compiled, its numbers compared.

    A case that draws is compared with nothing dropped. Raises Disagreement, or whatever the compiler raises.
    """
    maker = MAKERS[name]
    with warnings.catch_warnings():
        # What a compiler has to say about a case is in its note.
        warnings.simplefilter("ignore")
        if case.last == "probability":
            calm = (*args[:-1], 0.0)
            compare(name, maker(case, calm), case, calm)
        made = maker(case, args)
        if case.last != "probability":
            compare(name, made, case, args)
        for _ in range(SETTLED if case.last == "rate" else 1):
            made.call()
    return made


def compare(name: str, made: Contender, case: Case, args: Arguments) -> None:
    """Call a contender once; raises Disagreement unless each result is near eager's, or near the one in float64.

    The latter because eager is no safe reference: its gradients of a norm's weight add up in bfloat16.
    """
    got, expected = _outcome(made), _outcome(eager(case, args))
    if len(got) != len(expected):
        raise Disagreement(f"{name} returns {len(got)} results, eager {len(expected)}")
    for i, (g, e) in enumerate(zip(got, expected, strict=True)):
        if not disagrees(g, e):
            continue
        exact = _outcome(eager(case, tuple(_widened(a) for a in args)))[i]
        if difference := disagrees(g, exact.to(e.dtype)):
            raise Disagreement(f"{name}, result {i}: {difference}")


def _outcome(made: Contender) -> list[torch.Tensor]:
    """The results of one call, and what it changed."""
    leaves = [*pytree.tree_leaves(made.call()), *made.written()]
    return [_as_tensor(leaf) for leaf in leaves if leaf is not None]


def _widened(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor) and argument.dtype in (torch.float32, torch.bfloat16):
        return argument.double()
    return argument


def disagrees(got: torch.Tensor, expected: torch.Tensor) -> str:
    """Why two results are not the same computation, or nothing.

    This tells a wrong formula from roundings, no more. Allowed is a share of the number and of the result's rms: a
    thousandth in float32, 3 % in bfloat16, a step of the grid in float8; and one in int8. How exact fused results are
    is the business of `fusebound verify`.
    """
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{got.dtype} {tuple(got.shape)} instead of {expected.dtype} {tuple(expected.shape)}"
    share = {torch.float32: 1e-3, torch.bfloat16: 3e-2, torch.float8_e4m3fn: 0.13}.get(got.dtype, 0.0)
    g, e = got.double(), expected.double()
    step = 1.0 if got.dtype == torch.int8 else 0.0
    slack = share * (e.abs() + e.square().mean().sqrt()) + step
    wrong = ~((g - e).abs() <= slack)
    if not bool(wrong.any()):
        return ""
    worst = float((g - e).abs().max())
    return f"{int(wrong.sum())} of {wrong.numel()} numbers differ, by {worst:.3g} at most"


def _as_tensor(leaf: Any) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        return leaf
    from bench.suite import in_jax

    return in_jax.tensor(leaf)


def _own(case: Case, args: Arguments) -> list[Any]:
    """The arguments, those that the case changes copied."""
    return [a.clone() if i in case.written else a for i, a in enumerate(args)]


def _on_own_memory(fn: Callable[..., Any], case: Case, args: Arguments) -> Contender:
    own = _own(case, args)
    written = [own[i] for i in case.written]
    if case.last != "rate":
        return Contender(lambda: fn(*own), lambda: written)
    tensors, rates = own[:-1], _rates()
    return Contender(lambda: fn(*tensors, next(rates)), lambda: written)


def _rates() -> Iterator[float]:
    """Learning rates that never come twice, from the first one down."""
    return (RATE / (1 + 1e-4 * step) for step in count())
