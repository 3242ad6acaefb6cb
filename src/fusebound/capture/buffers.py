"""Buffers that a module assigns anew (`self.b = self.b + x`): tracing sees those of the outermost module alone."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_buffer_registration_hook

from fusebound.capture.source import shown
from fusebound.capture.traps import _caller as caller
from fusebound.errors import CaptureError


@contextlib.contextmanager
def assigned(root: torch.nn.Module) -> Iterator[None]:
    """Trace `root` in here: raise E202, with the user's line, where it assigns a buffer that the graph would lose.

    The tracer maps an assignment to a value of its graph by the buffer's name, without that of the submodule, so that
    those of submodules vanish (torch 2.13, `_functorch/_aot_autograd/utils.py`); a buffer that was None has no place.
    """
    tracing = threading.get_ident()
    held = {id(m): dict(m._buffers) for m in root.modules()}

    def refuse(module: torch.nn.Module, name: str, buffer: Any) -> None:
        if threading.get_ident() != tracing or id(module) not in held:
            return
        if buffer is module._buffers.get(name):  # `self.b += 1` has written into it, and assigns it again
            return
        if module is root and isinstance(held[id(module)].get(name), torch.Tensor):
            return
        kind = type(module).__name__
        raise CaptureError(
            f"{kind}.{name}, a buffer {'that holds no tensor yet' if module is root else 'of a submodule'}, is assigned"
            " anew, which a graph would lose",
            where=shown(caller()), hint=f"write into it (self.{name}.copy_(...)), or run it eagerly", code="E202",
        )  # fmt: skip

    hook = register_module_buffer_registration_hook(refuse)
    try:
        yield
    finally:
        hook.remove()
        for module in root.modules():
            if id(module) in held:
                module._buffers.update(held[id(module)])
