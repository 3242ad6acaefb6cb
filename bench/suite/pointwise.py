"""Activations, gates, rotary embedding and quantization."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.suite.case import Case, Tensors, count, like, normal

aten = torch.ops.aten
HEADS, WIDTH = 8, 128
FP8_MAX = 448.0
"""The largest number of float8_e4m3fn."""


def gelu(x: Tensor) -> Tensor:
    """GELU by the error function."""
    return F.gelu(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by the hyperbolic tangent."""
    return F.gelu(x, approximate="tanh")


def gelu_backward(dy: Tensor, x: Tensor) -> Tensor:
    """What autograd runs for GELU."""
    return aten.gelu_backward(dy, x)


def gelu_tanh_backward(dy: Tensor, x: Tensor) -> Tensor:
    """What autograd runs for GELU by the hyperbolic tangent."""
    return aten.gelu_backward(dy, x, approximate="tanh")


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """SwiGLU's pointwise part."""
    return F.silu(gate) * up


def geglu(gate_and_up: Tensor) -> Tensor:
    """GeGLU's pointwise part, on the two halves of one projection."""
    gate, up = gate_and_up.chunk(2, -1)
    return F.gelu(gate) * up


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding by halves: x (heads, positions, width), tables (positions, width)."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def quantize_int8(x: Tensor) -> Tensors:
    """Symmetric int8 with a scale a row."""
    scale = (x.abs().amax(-1, keepdim=True) / 127).clamp_min(1e-6)
    return torch.round(x / scale).clamp(-128, 127).to(torch.int8), scale


def dequantize_int8(q: Tensor, scale: Tensor) -> Tensor:
    """Back from int8, with a scale a row."""
    return q.to(scale.dtype) * scale


def quantize_fp8(x: Tensor) -> Tensors:
    """float8_e4m3fn with one scale for all."""
    scale = x.abs().amax().clamp_min(1e-6) / FP8_MAX
    return (x / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn), scale


def dequantize_fp8(q: Tensor, scale: Tensor) -> Tensor:
    """Back from float8_e4m3fn."""
    return q.to(scale.dtype) * scale


def _positions(nbytes: int, dtype: torch.dtype) -> Tensors:
    positions = count(nbytes, dtype, HEADS * WIDTH)
    (x,) = normal(dtype, (HEADS, positions, WIDTH))
    steps = 10_000 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
    angles = torch.outer(torch.arange(positions), steps).repeat(1, 2)
    return x, angles.cos().to(dtype), angles.sin().to(dtype)


def _bytes(nbytes: int, dtype: torch.dtype) -> Tensors:
    """int8 rows as large as the result of dequantizing them asks for, and their scales."""
    (x,) = like(1)(nbytes, dtype)
    return quantize_int8(x)


def _small_floats(nbytes: int, dtype: torch.dtype) -> Tensors:
    (x,) = like(1)(nbytes, dtype)
    return quantize_fp8(x)


CASES = (
    Case(gelu, like(1)),
    Case(gelu_tanh, like(1)),
    Case(gelu_backward, like(2)),
    Case(gelu_tanh_backward, like(2)),
    Case(swiglu, like(2)),
    Case(geglu, like(1, 2048)),
    Case(rope, _positions),
    Case(quantize_int8, like(1)),
    Case(dequantize_int8, _bytes),
    Case(quantize_fp8, like(1), twice=(0,)),
    Case(dequantize_fp8, _small_floats),
)
