"""Calls machine code: tensors in, an exception out where the kernel raised a flag."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import NoReturn

import torch

from fusebound.codegen.build import Kernel
from fusebound.ir.ops import FAULTS
from fusebound.runtime.trampoline import Native, native

GRAIN = 1 << 15
"""Elements below which entering a parallel region costs more than it saves."""

_forked = False


def _mark_child() -> None:
    """An OpenMP region entered in a forked child would wait for threads that do not exist there."""
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_mark_child)


class OutOfRange(IndexError, RuntimeError):
    """An index that a kernel found out of range: eager raises the one, and the other for gather."""


Launch = Callable[..., None]
"""`launch(*tensors)`: runs a kernel on its parameters' memory."""


def launcher(kernel: Kernel, elements: int, threads: int = 0, *, fresh: bool = False) -> Launch:
    """A function of the parameters that runs the kernel.

    `threads` 0 follows `torch.get_num_threads()`; `fresh` asks for the form for untouched output memory. Raises
    OutOfRange for an index out of range and RuntimeError for an integer division by zero or a probability outside
    [0, 1], as eager does.
    """
    params = len(kernel.program.params)
    entry = kernel.fresh_address if fresh else kernel.address
    call = native(entry, params, release=elements >= GRAIN) or _by_ctypes(entry, params)
    asked = torch.get_num_threads
    parallel = takes_threads(kernel, elements)

    def run(*tensors: torch.Tensor) -> None:
        flag = call(*tensors, 1 if not parallel or _forked else threads or asked())
        if flag:
            _raise(kernel, flag)

    return run


def takes_threads(kernel: Kernel, elements: int) -> bool:
    """Whether a kernel over tensors of so many elements is split among threads."""
    return elements >= GRAIN and kernel.tiles > 1


def on_one_thread(kernel: Kernel, elements: int) -> Native | None:
    """The machine code itself, to be called with a 1 after the parameters; None where it may raise a flag, take several
    threads or come in two forms."""
    if kernel.flags or kernel.program.streams or takes_threads(kernel, elements):
        return None
    return native(kernel.address, len(kernel.program.params), release=elements >= GRAIN)


def _by_ctypes(entry: int, params: int) -> Native:
    """The same call without the trampoline."""
    array = ctypes.c_int64 * (params + 1)
    call = ctypes.CFUNCTYPE(None, ctypes.POINTER(array), ctypes.c_int32)(entry)

    def run(*given: torch.Tensor | int) -> int:
        *tensors, threads = given
        flag = ctypes.c_int32(0)
        call(array(*(t.data_ptr() for t in tensors), ctypes.addressof(flag)), threads)  # pyright: ignore
        return flag.value

    return run


def _raise(kernel: Kernel, flag: int) -> NoReturn:
    match FAULTS[flag - 1]:
        case "index":
            raise OutOfRange(f"index out of range in {kernel.name}")
        case "division":
            raise RuntimeError("ZeroDivisionError")
        case "probability":
            raise RuntimeError(f"a probability outside [0, 1] in {kernel.name}")
        case "overflow":
            raise RuntimeError("value cannot be converted to type float without overflow")
