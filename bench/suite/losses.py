"""Losses, and cross-entropy's gradient."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.suite.case import Case, Tensors, classes, like

aten = torch.ops.aten


def cross_entropy_32k(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over 32,768 classes."""
    return F.cross_entropy(logits, target)


def cross_entropy_128k(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over 131,072 classes."""
    return F.cross_entropy(logits, target)


def _logits_gradient(grad: Tensor, log_probs: Tensor, target: Tensor, rows: Tensor) -> Tensor:
    """What autograd runs for cross-entropy, from what it saved; `rows` counts them, `grad` is the loss's."""
    picked = aten.nll_loss_backward(grad, log_probs, target, None, 1, -100, rows)
    return aten._log_softmax_backward_data(picked, log_probs, 1, log_probs.dtype)


def cross_entropy_32k_backward(grad: Tensor, log_probs: Tensor, target: Tensor, rows: Tensor) -> Tensor:
    """The gradient of logits over 32,768 classes."""
    return _logits_gradient(grad, log_probs, target, rows)


def cross_entropy_128k_backward(grad: Tensor, log_probs: Tensor, target: Tensor, rows: Tensor) -> Tensor:
    """The gradient of logits over 131,072 classes."""
    return _logits_gradient(grad, log_probs, target, rows)


def huber_loss(x: Tensor, y: Tensor) -> Tensor:
    """Huber loss, mean over all elements."""
    return F.huber_loss(x, y)


def kl_loss(log_probs: Tensor, target: Tensor) -> Tensor:
    """Kullback–Leibler divergence, mean over rows."""
    return F.kl_div(log_probs, target, reduction="batchmean")


def cosine_similarity(x: Tensor, y: Tensor) -> Tensor:
    """Cosine of the angle between rows."""
    return F.cosine_similarity(x, y, dim=-1)


def _saved(nbytes: int, dtype: torch.dtype, columns: int) -> Tensors:
    logits, target = classes(nbytes, dtype, columns)
    rows = torch.tensor(float(len(target)), dtype=dtype)
    return torch.ones_like(rows), F.log_softmax(logits, -1), target, rows


def _distributions(nbytes: int, dtype: torch.dtype) -> Tensors:
    x, y = like(2)(nbytes, dtype)
    return F.log_softmax(x, -1), F.softmax(y, -1)


CASES = (
    Case(cross_entropy_32k, partial(classes, columns=1 << 15)),
    Case(cross_entropy_128k, partial(classes, columns=1 << 17)),
    Case(cross_entropy_32k_backward, partial(_saved, columns=1 << 15)),
    Case(cross_entropy_128k_backward, partial(_saved, columns=1 << 17)),
    Case(huber_loss, like(2)),
    Case(kl_loss, _distributions),
    Case(cosine_similarity, like(2)),
)
