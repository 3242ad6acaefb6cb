"""What a specialization depends on: everything about a call that capture has baked in."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from fusebound.runtime.private import plain_dispatch

Key = tuple[Any, ...]


def call_key(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Key | None:
    """A hashable description of the arguments and of the state around them; None where there is none.

    Tensors count by shape, strides, dtype, device, layout and dispatch; numbers and strings by value; modules by
    their training flags; captured Python variables by value or identity.
    """
    flat, spec = tree_flatten((tuple(args), dict(kwargs)))
    parts: list[Any] = [spec, torch.is_inference_mode_enabled(), torch.get_default_dtype()]
    for a in flat:
        part = tensor_key(a) if isinstance(a, torch.Tensor) else constant_key(a)
        if part is None:
            return None
        parts.append(part)
    parts.append(_identities(flat))
    parts.extend(_surroundings(fn))
    return tuple(parts)


def tensor_key(t: torch.Tensor) -> Key | None:
    """Metadata that kernels are compiled for; None for tensors that fusebound leaves alone."""
    if type(t) not in (torch.Tensor, torch.nn.Parameter) or t.layout != torch.strided or t.is_quantized:
        return None
    if t.is_conj() or t.is_neg() or torch.autograd.forward_ad._current_level >= 0:
        return None
    return (t.shape, t.stride(), t.dtype, t.device, t.requires_grad)


def constant_key(a: Any) -> Key | None:
    """A Python constant by type and value: 1, 1.0 and True are different specializations."""
    if isinstance(a, (bool, int, str, type(None), torch.dtype, torch.device, torch.layout)):
        return (type(a), a)
    if isinstance(a, float):
        return (float, a.hex())
    return None


def _identities(flat: Sequence[Any]) -> Key:
    """Which arguments are the same tensor object."""
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(id(a), i) for i, a in enumerate(flat) if isinstance(a, torch.Tensor))


def _surroundings(fn: Callable[..., Any]) -> Iterator[Any]:
    if isinstance(fn, torch.nn.Module):
        yield tuple(m.training for m in fn.modules())
        yield tuple((p.shape, p.stride(), p.dtype, p.device) for p in _state(fn))
        return
    if isinstance(fn, types.MethodType) and isinstance(fn.__self__, torch.nn.Module):
        yield from _surroundings(fn.__self__)
    inner = getattr(fn, "__func__", fn)
    code = getattr(inner, "__code__", None)
    if code is None:
        return
    for cell in inner.__closure__ or ():
        yield _variable(cell.cell_contents)
    for name in code.co_names:
        if name in inner.__globals__:
            yield _variable(inner.__globals__[name])
    for default in inner.__defaults__ or ():
        yield _variable(default)


def _variable(x: Any) -> Any:
    if isinstance(x, torch.nn.Module):
        return (id(x), *_surroundings(x))
    if isinstance(x, torch.Tensor):
        return (id(x), tensor_key(x))
    return constant_key(x) or id(x)


def _state(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def wants_grad(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether autograd would record this call."""
    if not torch.is_grad_enabled():
        return False
    flat, _ = tree_flatten((tuple(args), dict(kwargs)))
    if any(isinstance(a, torch.Tensor) and a.requires_grad for a in flat):
        return True
    owner = getattr(fn, "__self__", fn)
    return isinstance(owner, torch.nn.Module) and any(p.requires_grad for p in owner.parameters())


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
        if any(j != i and b is not None and a[0] < b[1] and b[0] < a[1] for j, b in enumerate(spans)):
            return True
    return False


def _span(t: Any) -> tuple[int, int] | None:
    if not isinstance(t, torch.Tensor) or t.numel() == 0 or t.device.type != "cpu":
        return None
    start = t.data_ptr()
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return start, start + (last + 1) * t.element_size()
