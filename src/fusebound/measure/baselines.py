"""What a built program is compared with: eager and, on request, Inductor."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusebound.errors import UsageError, unknown

NAMES = ("eager", "inductor")


@dataclass(frozen=True, slots=True)
class Baseline:
    """A way to run the user's function. `compile_s` is what its first call took beyond the second (0 for
    eager)."""

    name: str
    call: Callable[[], object]
    compile_s: float = 0.0


def baseline(
    name: str, fn: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Baseline:
    """The opponent called `name`, ready to run; raises UsageError for an unknown one or one that fails.

    Inductor compiles here, with its own defaults and fixed shapes; its cache on disk may make that quick.
    """
    if name == "eager":
        return Baseline(name, without_gradients(fn, args, kwargs))
    if name == "inductor":
        return _inductor(fn, args, kwargs)
    raise unknown("opponent", name, NAMES)


def without_gradients(
    fn: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[[], object]:
    """`fn` on fixed arguments under `torch.no_grad`."""
    args, kwargs = tuple(args), dict(kwargs)

    def call() -> object:
        with torch.no_grad():
            return fn(*args, **kwargs)

    return call


def _inductor(fn: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Baseline:
    with warnings.catch_warnings():
        # Inductor's warnings speak of its own internals; a failure still raises.
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        try:
            call = without_gradients(torch.compile(fn, dynamic=False), args, kwargs)
            call()
        except Exception as why:
            text = (str(why) or type(why).__name__).splitlines()[0]
            raise UsageError(
                f"Inductor cannot compile this function: {text}",
                hint="it needs a C++ compiler; leave it out of the opponents",
            ) from why
        first = time.perf_counter()
        call()
    return Baseline("inductor", call, max(2 * first - start - time.perf_counter(), 0.0))
