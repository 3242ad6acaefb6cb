"""Tensors and Python constants as parts of a key."""

from __future__ import annotations

from typing import Any

import torch

Key = tuple[Any, ...]


def tensor_key(t: torch.Tensor) -> Key | None:
    """Metadata that kernels are compiled for; None for tensors that fusebound leaves alone."""
    if type(t) not in (torch.Tensor, torch.nn.Parameter) or t.layout != torch.strided:
        return None
    if t.is_quantized or t.is_nested:
        return None
    if t.is_conj() or t.is_neg() or torch.autograd.forward_ad._current_level >= 0:
        return None
    return (t.shape, t.stride(), t.dtype, t.device, t.requires_grad)


def constant_key(a: Any) -> Key | None:
    """A Python constant by type and value: 1, 1.0 and True are different specializations."""
    if isinstance(a, (bool, int, str, type(None), torch.dtype, torch.device, torch.layout)):
        return (type(a), a)
    if isinstance(a, float):
        return (type(a), a.hex())
    return None
