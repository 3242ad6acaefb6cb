"""Calls machine code: pointers and a flag word in, an exception out where the kernel raised a flag."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence

import torch

from fusebound.codegen.build import Kernel
from fusebound.codegen.llvm import FLAG_INDEX

GRAIN = 1 << 15
"""Elements below which entering a parallel region costs more than it saves."""

_forked = False


def _mark_child() -> None:
    """An OpenMP region entered in a forked child would wait for threads that do not exist there."""
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_mark_child)

Launch = Callable[[Sequence[int]], None]


def launcher(kernel: Kernel, elements: int, threads: int = 0) -> Launch:
    """A function of the parameters' addresses that runs the kernel.

    `threads` 0 follows `torch.get_num_threads()`. Raises IndexError for an index out of range and RuntimeError for
    an integer division by zero, as eager does.
    """
    array = ctypes.c_int64 * (len(kernel.program.params) + 1)
    call = ctypes.CFUNCTYPE(None, array, ctypes.c_int32)(kernel.address)
    call.argtypes = [ctypes.POINTER(array), ctypes.c_int32]
    count = _thread_count(threads) if elements >= GRAIN and kernel.tiles > 1 else _one
    if not kernel.flags:

        def run(addresses: Sequence[int]) -> None:
            call(array(*addresses), count())

        return run
    local = threading.local()

    def run_flagged(addresses: Sequence[int]) -> None:
        try:
            flag = local.flag
        except AttributeError:
            flag = local.flag = ctypes.c_int32(0)
        call(array(*addresses, ctypes.addressof(flag)), count())
        if flag.value:
            code, flag.value = flag.value, 0
            _raise(kernel, code)

    return run_flagged


def _one() -> int:
    return 1


def _thread_count(threads: int) -> Callable[[], int]:
    asked = torch.get_num_threads

    def count() -> int:
        return 1 if _forked else threads or asked()

    return count


def _raise(kernel: Kernel, code: int) -> None:
    if code == FLAG_INDEX:
        raise IndexError(f"index out of range in {kernel.name}")
    raise RuntimeError("ZeroDivisionError")
