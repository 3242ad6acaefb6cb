"""Softmax and its relatives, and normalisation over rows, forward and backward."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.suite.case import Case, Tensors, count, like, normal, with_rows

aten = torch.ops.aten
EPS = 1e-5


def softmax_last(x: Tensor) -> Tensor:
    """Softmax over the last axis."""
    return F.softmax(x, -1)


def softmax_first(x: Tensor) -> Tensor:
    """Softmax over the first axis, the slowest in memory."""
    return F.softmax(x, 0)


def log_softmax(x: Tensor) -> Tensor:
    """Log-softmax over the last axis."""
    return F.log_softmax(x, -1)


def logsumexp(x: Tensor) -> Tensor:
    """Log of the sum of exponentials over the last axis."""
    return torch.logsumexp(x, -1)


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Layer norm over the last axis."""
    return F.layer_norm(x, (x.shape[-1],), w, b, EPS)


def layer_norm_backward(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor, b: Tensor) -> Tensors:
    """What autograd runs for layer norm: gradients of x, weight and bias from what it saved."""
    return aten.native_layer_norm_backward(dy, x, (x.shape[-1],), mean, rstd, w, b, [True, True, True])


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    """RMS norm as models write it."""
    wide = x.float()
    return w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)).to(x.dtype)


def rms_norm_backward(dy: Tensor, x: Tensor, w: Tensor) -> Tensors:
    """Gradients of x and weight, written out."""
    wide, grad = x.float(), dy.float()
    rstd = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
    normed, weighted = wide * rstd, grad * w.float()
    dx = rstd * (weighted - normed * (weighted * normed).mean(-1, keepdim=True))
    return dx.to(x.dtype), (grad * normed).sum(0).to(w.dtype)


def residual_norm_gelu(x: Tensor, residual: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Residual, layer norm, activation."""
    return F.gelu(F.layer_norm(x + residual, (x.shape[-1],), w, b, EPS))


def dropout_residual_norm(x: Tensor, residual: Tensor, w: Tensor, b: Tensor, p: float) -> Tensor:
    """Dropout in train mode, residual, layer norm."""
    return F.layer_norm(F.dropout(x, p, training=True) + residual, (x.shape[-1],), w, b, EPS)


def concat_norm(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Layer norm over two inputs side by side."""
    both = torch.cat((x, y), -1)
    return F.layer_norm(both, (both.shape[-1],), w, b, EPS)


def _saved_by_layer_norm(nbytes: int, dtype: torch.dtype) -> Tensors:
    dy, x, w, b = with_rows(2, 2)(nbytes, dtype)
    _, mean, rstd = aten.native_layer_norm(x, (x.shape[-1],), w, b, EPS)
    return dy, x, mean, rstd, w, b


def _two_halves(nbytes: int, dtype: torch.dtype) -> Tensors:
    half = (count(nbytes, dtype, 512), 512)
    return normal(dtype, half, half, (1024,), (1024,))


CASES = (
    Case(softmax_last, like(1)),
    Case(softmax_first, like(1)),
    Case(log_softmax, like(1)),
    Case(logsumexp, like(1)),
    Case(layer_norm, with_rows(1, 2)),
    Case(layer_norm_backward, _saved_by_layer_norm),
    Case(rms_norm, with_rows(1, 1)),
    Case(rms_norm_backward, with_rows(2, 1)),
    Case(residual_norm_gelu, with_rows(2, 2)),
    Case(dropout_residual_norm, with_rows(2, 2), last="probability"),
    Case(concat_norm, _two_halves),
)
