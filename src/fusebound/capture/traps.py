"""What tracing would get silently wrong, detected: each trap is a CaptureError with the user's line.

E201 a tensor that is no input is mutated · E202 a Python side effect · E203 `.backward()` inside ·
E204 overlapping inputs, one of them mutated · E205 a Python branch on a value ·
E206 an in-place operator on memory that it reads or sees through gaps ·
E207 a Python number differs from the captured one ·
E209 a branch of control flow that cannot be a graph of its own · E210 shapes that fit for one value only
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import linecache
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch._dynamo.exc import TorchDynamoException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._pytree import tree_leaves

from fusebound.capture.branches import refusal
from fusebound.capture.buffers import assigning, tied
from fusebound.capture.overlap import storage_of
from fusebound.capture.results import check_results
from fusebound.capture.source import is_user_file, line_of, shown
from fusebound.capture.state import Change, Watch
from fusebound.capture.wrap import defined_at, named
from fusebound.errors import CaptureError
from fusebound.ir.graph import Source

_PURE = "branches read what they are given, return new tensors of equal kinds, and do nothing else"
_EAGER = "run it eagerly, or write it so that it only reads its inputs and returns its results"


def effect(change: Change, lost: Sequence[str], fn: Any) -> CaptureError:
    """The error for a change that `Watch` saw, at its line, or else at the function as a whole."""
    where = shown(change.source) if change.source.file else defined_at(fn)
    hint = f"{_EAGER}; {', '.join(lost)} could not be restored" if lost else _EAGER
    if change.tensor:
        return CaptureError(
            f"the function changes {change.name}, a tensor that is no argument, parameter or buffer",
            where=where, hint=f"register it as a buffer, pass it in, or {hint}", code="E201",
        )  # fmt: skip
    return CaptureError(
        f"the function changes {change.name}: a Python side effect, which a graph does not repeat",
        where=where, hint=hint, code="E202",
    )  # fmt: skip


@contextlib.contextmanager
def no_backward() -> Iterator[None]:
    """Make `.backward()` raise E203 with the caller's line while the user's function is traced."""
    original = torch.autograd.backward
    tracing = threading.get_ident()

    def refuse(*args: Any, **kwargs: Any) -> None:
        if threading.get_ident() != tracing:
            return original(*args, **kwargs)
        raise CaptureError(
            "the function calls backward(): gradients that it stores are no part of a graph",
            where=shown(_caller()), code="E203",
            hint="use torch.autograd.grad and return the gradients, or run it eagerly",
        )  # fmt: skip

    torch.autograd.backward = refuse
    try:
        yield
    finally:
        torch.autograd.backward = original


_SEEDING = ("manual_seed", "seed", "set_rng_state")
_SETTING = tuple(
    n for n in dir(torch) if n.startswith(("set_", "use_")) and n not in ("set_grad_enabled", "set_rng_state")
)
"""Functions that set what holds for the process: its default type, its threads, how it rounds."""
_UNSET = object()
"""What a context variable holds that was not set."""
_AROUND = (contextlib.__file__, torch.random.__file__)
"""Files between the user's code and a call that `fork_rng` makes for it."""


@contextlib.contextmanager
def no_setting() -> Iterator[None]:
    """Make the user's calls that set the random generator, `fork_rng` among them, or a setting of the process raise
    E202 while the function is traced: a graph would not repeat them. The framework's own calls are let through."""
    tracing = threading.get_ident()

    def refusing(original: Callable[..., Any], what: str, hint: str) -> Callable[..., Any]:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_code.co_filename in _AROUND:
                frame = frame.f_back
            if threading.get_ident() != tracing or not is_user_file(frame.f_code.co_filename):
                return original(*args, **kwargs)
            raise CaptureError(
                f"the function {what}, which a graph would not repeat", where=shown(_caller(frame)),
                hint=f"{hint} before the call, or run it eagerly", code="E202",
            )  # fmt: skip

        return refuse

    refused = [(m, n, "sets the random generator", "seed") for m in (torch, torch.random) for n in _SEEDING]
    refused += [(torch, n, f"calls torch.{n}", "set it") for n in _SETTING]
    originals = [getattr(module, name) for module, name, _, _ in refused]
    for (module, name, what, hint), original in zip(refused, originals, strict=True):
        setattr(module, name, refusing(original, what, hint))
    try:
        yield
    finally:
        for (module, name, _, _), original in zip(refused, originals, strict=True):
            setattr(module, name, original)


def _caller(frame: FrameType | None = None) -> Source:
    """The user's line, from a frame outwards (by default from the caller's caller)."""
    frame = frame or sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if is_user_file(code.co_filename):
            return Source(
                code.co_filename, frame.f_lineno, linecache.getline(code.co_filename, frame.f_lineno).strip()
            )
        frame = frame.f_back
    return Source()


@contextlib.contextmanager
def watched(fn: Any, module: torch.nn.Module) -> Iterator[None]:
    """Trace `module` (which is or wraps `fn`) in here.

    Side effects are undone and raised as CaptureError; other errors get the user's line.
    """
    watch = Watch(fn)
    if watch.steps or isinstance(getattr(fn, "__self__", None), torch.optim.Optimizer):
        raise CaptureError(
            "the function steps an optimizer, whose parameters and state are no arguments",
            hint="write the step as a function of its tensors, or run it eagerly", code="E201",
        )  # fmt: skip
    if watch.iterator:
        raise CaptureError(
            f"the function reads the iterator {watch.iterator}, which tracing would move",
            hint="pass its items in, or run it eagerly", code="E202",
        )  # fmt: skip
    random_state = torch.get_rng_state()
    drawn = _Drawn()
    seen: list[Change] = []
    try:
        with no_backward(), no_setting(), _probed(fn, module, seen):
            yield
    except Exception as e:
        found = seen or watch.mutated()
        lost = watch.undo()
        known = _ours(e)
        if known is not None:
            raise known from e
        raise (effect(found[0], lost, fn) if found else explain(e, fn, module)) from e
    else:
        found = seen or watch.mutated()
        lost = watch.undo()
        if found:
            raise effect(found[0], lost, fn)
        if drawn.moved():
            raise CaptureError(
                "the function draws random numbers of Python or numpy: a graph would repeat the first ones",
                hint="draw with torch, pass the numbers in, or run it eagerly", code="E202",
            )  # fmt: skip
    finally:
        drawn.undo()
        if not torch.equal(random_state, torch.get_rng_state()):
            torch.set_rng_state(random_state)


class _Drawn:
    """The random generators of Python and numpy before tracing, which would bake in what they yield."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy = np.random.get_state(legacy=False)

    def moved(self) -> bool:
        return random.getstate() != self._python or _position(np.random.get_state(legacy=False)) != _position(
            self._numpy
        )

    def undo(self) -> None:
        random.setstate(self._python)
        np.random.set_state(self._numpy)


def _position(state: Any) -> tuple[bytes, int]:
    """Where numpy's global generator stands."""
    return state["state"]["key"].tobytes(), state["state"]["pos"]


@contextlib.contextmanager
def _probed(fn: Any, module: torch.nn.Module, seen: list[Change]) -> Iterator[None]:
    """Compare before and after `forward`: around it, the framework swaps attributes and puts them back."""
    forward = module.forward
    own = module.__dict__.get("forward")

    @functools.wraps(forward)
    def probe(*args: Any, **kwargs: Any) -> Any:
        watch = Watch(fn, named(fn, args, kwargs), copies=False)
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        memory = [storage_of(t) for t in tensors]
        before, context = contextvars.copy_context(), contextvars.copy_context()
        own = {id(t) for t in (*tensors, *module.parameters(), *module.buffers())}
        try:
            result = context.run(assigning, module, forward, args, kwargs, watch.line)
        finally:
            changed = [v.name for v in watch.variables if before.get(v, _UNSET) is not context.get(v, _UNSET)]
            seen.extend(Change(f"the context variable {n}", False, watch.line("set")) for n in changed)
            seen.extend(watch.changes())
            if memory != [storage_of(t) for t in tensors]:
                seen.append(watch.given_other_memory())
        if not seen:
            check_results(result, own, watch, fn)
        return result

    module.__dict__["forward"] = probe
    try:
        yield
    finally:
        if own is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = own


def _ours(e: BaseException | None) -> CaptureError | None:
    while e is not None:
        if isinstance(e, CaptureError):
            return e
        e = e.__cause__ or e.__context__
    return None


def explain(e: Exception, fn: Any, module: torch.nn.Module) -> CaptureError:
    """The framework's error as one of ours, at the user's line; where none of the user's code was running, at the
    function as a whole."""
    line = line_of(e.__traceback__)
    where = shown(line) if line.file else defined_at(fn)
    if isinstance(e, GuardOnDataDependentSymNode):
        return CaptureError(
            "Python decides by a value of a tensor: a graph has no branches",
            where=where, hint="use torch.where or torch.cond, or run it eagerly", code="E205",
        )  # fmt: skip
    if isinstance(e, TorchDynamoException):
        text = _cause(str(e))
        return refusal(
            f"control flow that the framework does not trace: {text}", line_of(e.__traceback__), _PURE
        )
    if names := tied(module):
        return CaptureError(
            f"{' and '.join(names)} are two names for one buffer, which the framework does not trace",
            where=where, hint="give each a tensor of its own, or run it eagerly", code="E204",
        )  # fmt: skip
    text = str(e).strip().split("\n")[0] or type(e).__name__
    return CaptureError(f"the function cannot be captured: {text}", where=where)


def _cause(text: str) -> str:
    """The line of a framework's message that says why: an inner error, else what follows the first blank line."""
    inner = re.search(r"""got \w+\(["'](.*?)(?:\\n|["']\)|\n)""", text)
    return inner[1] if inner else text.partition("\n\n")[2].split("\n")[0] or text.split("\n")[0]
