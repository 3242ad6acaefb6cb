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
    count = len(kernel.program.params) + 1
    array = ctypes.c_int64 * count
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)(kernel.address)
    addressof, flag_type, byref = ctypes.addressof, ctypes.c_int32, ctypes.byref
    local = threading.local()
    parallel = elements >= GRAIN and kernel.tiles > 1
    get_threads = torch.get_num_threads

    def run(addresses: Sequence[int]) -> None:
        try:
            flag, where = local.flag
        except AttributeError:
            flag = flag_type(0)
            where = addressof(flag)
            local.flag = flag, where
        n = 1 if not parallel or _forked else threads or get_threads()
        args = array(*addresses, where)
        call(byref(args), n)
        if flag.value:
            code, flag.value = flag.value, 0
            _raise(kernel, code)

    return run


def _raise(kernel: Kernel, code: int) -> None:
    if code == FLAG_INDEX:
        raise IndexError(f"index out of range in {kernel.name}")
    raise RuntimeError("ZeroDivisionError")
