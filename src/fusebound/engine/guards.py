"""What a specialization depends on: everything about a call that capture has baked in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from fusebound.engine.keys import Key, constant_key, tensor_key
from fusebound.engine.surroundings import surroundings
from fusebound.runtime.private import plain_dispatch

__all__ = ["Key", "call_key", "constant_key", "dispatch_is_plain", "overlaps", "wants_grad"]


def call_key(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Key | None:
    """A hashable description of the arguments and of the state around them; None where there is none.

    Tensors count by shape, strides, dtype, device, layout and dispatch; numbers and strings by value; what the
    function reaches by itself by value or identity.
    """
    flat, spec = tree_flatten((tuple(args), dict(kwargs)))
    parts: list[Any] = [spec, torch.is_inference_mode_enabled(), torch.get_default_dtype()]
    for a in flat:
        part = tensor_key(a) if isinstance(a, torch.Tensor) else constant_key(a)
        if part is None:
            return None
        parts.append(part)
    parts.append(_identities(flat))
    parts.append(surroundings(fn).key)
    return tuple(parts)


def _identities(flat: Sequence[Any]) -> Key:
    """Which arguments are the same tensor object."""
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(id(a), i) for i, a in enumerate(flat) if isinstance(a, torch.Tensor))


def wants_grad(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether autograd would record this call."""
    if not torch.is_grad_enabled():
        return False
    flat, _ = tree_flatten((tuple(args), dict(kwargs)))
    if any(isinstance(a, torch.Tensor) and a.requires_grad for a in flat):
        return True
    return surroundings(fn).grads


def dispatch_is_plain() -> bool:
    """Whether no mode, autocast or transform stands between the caller and the framework."""
    return plain_dispatch() and not torch.is_autocast_enabled("cpu")


def overlaps(inputs: Sequence[Any], written: Sequence[int]) -> bool:
    """Whether an input that is written shares memory with another input (or with itself)."""
    spans = [_span(t) for t in inputs]
    for i in written:
        a = spans[i]
        if a is None:
            continue
        if _folds(inputs[i]):
            return True
        if any(j != i and b is not None and a[0] < b[1] and b[0] < a[1] for j, b in enumerate(spans)):
            return True
    return False


def _folds(t: torch.Tensor) -> bool:
    """Whether several indices of a tensor may meet at one address."""
    reach = 0
    for stride, n in sorted((s, n) for s, n in zip(t.stride(), t.shape, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += (n - 1) * stride
    return False


def _span(t: Any) -> tuple[int, int] | None:
    if not isinstance(t, torch.Tensor) or t.numel() == 0 or t.device.type != "cpu":
        return None
    start = t.data_ptr()
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return start, start + (last + 1) * t.element_size()
