"""The private corners of torch that the runtime uses, in one place.

Where torch has one no more, a public form stands in, or what it serves stays off: the pool, a route, the trampoline.
`written_plain_dispatch` alone has no other form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Sizes = tuple[int, ...]


def _empty_strided(shape: Sizes, strides: Sizes, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype)


try:
    from torch._C._dynamo.guards import _empty_strided_cpu as _fast  # pyright: ignore
except ImportError:
    _fast = _empty_strided

empty_strided: Callable[[Sizes, Sizes, torch.dtype], torch.Tensor] = _fast
"""Uninitialised CPU memory."""


def _no_count(cdata: int) -> int:
    """Without a use count the pool's self-test fails and the pool stays off."""
    del cdata
    return 0


use_count = getattr(torch._C, "_storage_Use_Count", _no_count)
profiling = getattr(torch.autograd, "_profiler_enabled", lambda: False)


def written_plain_dispatch() -> tuple[list[str], dict[str, Any]]:
    """Terms that are all true where no mode, functorch transform, tracer or forward-mode level stands between caller
    and framework, and the names in them."""
    names = {
        "modes": torch._C._len_torch_dispatch_stack,
        "function_mode": torch._C._is_torch_function_mode_enabled,
        "interpreter": torch._C._functorch.peek_interpreter_stack,  # pyright: ignore[reportAttributeAccessIssue]
        "tracing": torch._C._get_tracing_state,
        "duals": torch.autograd.forward_ad,
    }
    return [
        "not modes()", "not function_mode()", "interpreter() is None", "tracing() is None", "duals._current_level < 0",
    ], names  # fmt: skip


def _plain_dispatch() -> Callable[[], bool]:
    terms, names = written_plain_dispatch()
    return eval("lambda: " + " and ".join(terms), names)


plain_dispatch = _plain_dispatch()
"""Whether nothing stands between caller and framework: all terms of `written_plain_dispatch` are true."""


def global_hooks() -> list[Mapping[int, Any]]:
    """The tables of hooks that run around the `forward` of every module."""
    names = ("_global_forward_hooks", "_global_forward_pre_hooks")
    return [getattr(torch.nn.modules.module, name, {}) for name in names]


def tensor_check(tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
    """A function of as many tensors that says whether type, dtype, device, dispatch, gradient flag, sizes and
    strides are those of the given ones; None where torch has no such guard."""
    try:
        from torch._C._dynamo.guards import TensorGuards  # pyright: ignore

        check = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        return check if check(*tensors) else None
    except (ImportError, TypeError, ValueError, RuntimeError):
        return None


def state_check() -> Callable[[], bool] | None:
    """A function that says whether gradient mode, autocast, determinism, default dtype and threads are as now."""
    try:
        from torch._C._dynamo.guards import GlobalStateGuard  # pyright: ignore

        check = GlobalStateGuard().check
        return check if check() else None
    except (ImportError, TypeError, RuntimeError):
        return None


def tensor_data_address() -> int | None:
    """Address of a C function from a tensor object to its data pointer, as TorchInductor uses it."""
    try:
        from torch._C._dynamo.guards import _torchinductor_pyobject_tensor_data_ptr as address  # pyright: ignore
    except ImportError:
        return None
    return address if isinstance(address, int) else None
