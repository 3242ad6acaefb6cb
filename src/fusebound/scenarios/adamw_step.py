"""One AdamW update, in place over several tensors, on gradients accumulated from a micro-batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

RATE, DECAY, BETA1, BETA2, EPS = 3e-4, 0.1, 0.9, 0.95, 1e-8


def adamw_step(
    params: list[Tensor],
    grads: list[Tensor],
    micro_grads: list[Tensor],
    means: list[Tensor],
    squares: list[Tensor],
    step: Tensor,
) -> None:
    """Add `micro_grads` to `grads`, then update `params` and both moments; `step` is a 0-d float32 counter.

    Loshchilov and Hutter, "Decoupled weight decay regularization", algorithm 2.
    """
    step.add_(1)
    correction1 = 1 - BETA1**step
    correction2 = (1 - BETA2**step).sqrt()
    for param, grad, micro, mean, square in zip(params, grads, micro_grads, means, squares, strict=True):
        grad.add_(micro)
        param.mul_(1 - RATE * DECAY)
        mean.lerp_(grad, 1 - BETA1)
        square.mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
        denominator = (square.sqrt() / correction2).add_(EPS)
        param.sub_(RATE * (mean / correction1) / denominator)


def build(*, small: bool = False) -> tuple[Callable[..., None], tuple[object, ...]]:
    """The update for the parameters of one feed-forward block (two matrices, two biases, a norm's weight)."""
    torch.manual_seed(0)
    dim, hidden = (16, 48) if small else (768, 3072)
    shapes = [(hidden, dim), (hidden,), (dim, hidden), (dim,), (dim,)]
    params, grads, micro_grads, means = ([0.02 * torch.randn(s) for s in shapes] for _ in range(4))
    squares = [1e-4 * torch.rand(s) for s in shapes]
    return adamw_step, (params, grads, micro_grads, means, squares, torch.tensor(10.0))
