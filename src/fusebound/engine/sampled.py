"""`fb.compile(fn, check=0.001)`: a share of the calls is run both ways, to try a plan before it is trusted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from fusebound.engine.compile import CompiledFunction, Options, callers_level
from fusebound.engine.drift import Drift, Kept, Twin


class DriftWarning(UserWarning):
    """Said once per function: sampled calls show numbers that are worse than eager's, and at which line."""


class SampledFunction(CompiledFunction):
    """A compiled function of which every n-th call is also run eagerly; `report` says what that has shown.

    A sampled call returns and changes what any other call would. It runs the user's function once more, on copies.
    """

    def __init__(self, fn: Callable[..., Any], options: Options, check: float) -> None:
        super().__init__(fn, options)
        self._check, self._every = check, max(1, round(1 / check))
        self._calls = 0
        self._kept = Kept()
        self._warned = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            self._calls += 1
            if self._calls % self._every == 0:
                return self._both(args, kwargs)
        return super().__call__(*args, **kwargs)

    def _both(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = "" if self._disabled else self._find(args, kwargs)
        if isinstance(found, str) or found[0].executable is None or found[0].captured is None:
            return super().__call__(*args, **kwargs)
        captured, exe = found[0].captured, found[0].executable
        if exe.overlapping(captured.bind(args, kwargs)):
            return super().__call__(*args, **kwargs)
        twin = Twin(captured, exe, args, kwargs)
        result, error = None, None
        try:
            result = super().__call__(*args, **kwargs)
        except Exception as raised:  # whatever it is, eager has to raise the same
            error = raised
        with self._lock:
            try:
                twin.compare(result, error, self._kept)
            except Exception as why:  # the call itself went well: its caller must not pay for the comparison
                self._kept.faults[f"a call could not be compared: {why!r}"] = None
        self._warn()
        if error is not None:
            raise error
        return result

    def _made_from(self) -> tuple[Any, ...]:
        return self.fn, self.options, self._check

    @property
    def report(self) -> Drift:
        """What the sampled calls have shown so far."""
        return self._kept.shown(self._calls, self.reason or f"one call in {self._every} is compared")

    def _warn(self) -> None:
        wrong = self.report.wrong
        if wrong and not self._warned:
            self._warned = True
            name = getattr(self.fn, "__name__", type(self.fn).__name__)
            warnings.warn(f"{name} differs from eager: {wrong[0]}", DriftWarning, stacklevel=callers_level())
