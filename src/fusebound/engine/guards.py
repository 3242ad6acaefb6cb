"""What a specialization depends on: everything about a call that capture has baked in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves

from fusebound.engine.keys import Key, constant_key, tensor_key
from fusebound.engine.places import Surroundings
from fusebound.runtime.private import plain_dispatch

__all__ = [
    "Key", "call_key", "carried", "constant_key", "dispatch_is_plain", "has_frozen", "records_grad", "repeats",
    "wants_grad",
]  # fmt: skip


def call_key(around: Surroundings, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Key | None:
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
    parts.append(around.key)
    return tuple(parts)


def _identities(flat: Sequence[Any]) -> Key:
    """Which arguments are the same tensor object."""
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(id(a), i) for i, a in enumerate(flat) if isinstance(a, torch.Tensor))


def records_grad(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether autograd would record this call for its arguments or its module's parameters."""
    if not torch.is_grad_enabled():
        return False
    if isinstance(fn, torch.nn.Module) and any(p.requires_grad for p in fn.parameters()):
        return True
    return any(isinstance(a, torch.Tensor) and a.requires_grad for a in tree_leaves((args, kwargs)))


def has_frozen(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether eager would refuse to write into an argument: inference tensors change in inference mode alone."""
    if torch.is_inference_mode_enabled():
        return False
    return any(isinstance(a, torch.Tensor) and a.is_inference() for a in tree_leaves((args, kwargs)))


def carried(around: Surroundings, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The attribute of the user's that a tensor argument carries and code may ask for; empty where there is none."""
    tensors = (a for a in tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor))
    return min((n for t in tensors if around.asked for n in around.asked & vars(t).keys()), default="")


def repeats(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether one tensor is given twice: tracing sees two."""
    places = _identities(tree_leaves((args, kwargs)))
    return len(set(places)) < len(places)


def wants_grad(around: Surroundings) -> bool:
    """Whether autograd would record a call for what the function reaches."""
    return around.grads and torch.is_grad_enabled()


def dispatch_is_plain() -> bool:
    """Whether no mode, autocast or transform stands between the caller and the framework."""
    return plain_dispatch() and not torch.is_autocast_enabled("cpu")
