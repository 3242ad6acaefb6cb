"""The error inputs of `op_db`: a compiled function raises what eager raises."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from tests.conformance.opinfo import CALLS, PLANNED_FOR, full_name, program
from torch.testing._internal.opinfo.core import OpInfo

from fusebound.engine.compile import Options, compile


def check_errors(op: OpInfo) -> tuple[int, list[str]]:
    """How many error inputs eager refuses, and where the compiled function does not raise the same."""
    if op.error_inputs_func is None:
        return 0, []
    count, wrong = 0, []
    for i, given in enumerate(op.error_inputs("cpu")):
        fn, args = program(op.op, given.sample_input)
        eager = raised(fn, args)
        if eager is None:
            continue
        count += 1
        options = Options(contest=False, expected_calls=CALLS, hardware=PLANNED_FOR)
        got = raised(compile(fn, options), args)
        if type(got) is not type(eager) or str(got) != str(eager):
            wrong.append(f"{full_name(op)} (error input {i}): {got!r} where eager raises {eager!r}")
    return count, wrong


def raised(fn: Callable[..., Any], args: tuple[Any, ...]) -> Exception | None:
    """What a call raises."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            fn(*args)
        except Exception as error:
            return error
    return None
