"""Optimizer steps, in place, with a learning rate that a schedule changes at every call."""

from __future__ import annotations

import torch
from torch import Tensor

from bench.suite.case import Case, Tensors, like

DECAY, BETA1, BETA2, EPS, MOMENTUM = 0.01, 0.9, 0.99, 1e-8, 0.9


def adamw(param: Tensor, grad: Tensor, mean: Tensor, square: Tensor, rate: float) -> None:
    """AdamW (Loshchilov and Hutter, algorithm 2); the bias corrections are part of the rate."""
    param.mul_(1 - rate * DECAY)
    mean.lerp_(grad, 1 - BETA1)
    square.mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
    param.sub_(rate * mean / (square.sqrt() + EPS))


def lion(param: Tensor, grad: Tensor, mean: Tensor, rate: float) -> None:
    """Lion (Chen et al., "Symbolic discovery of optimization algorithms", program 1)."""
    update = (mean * BETA1 + grad * (1 - BETA1)).sign()
    param.mul_(1 - rate * DECAY).sub_(rate * update)
    mean.lerp_(grad, 1 - BETA2)


def sgd_momentum(param: Tensor, grad: Tensor, momentum: Tensor, rate: float) -> None:
    """Stochastic gradient descent with momentum."""
    momentum.mul_(MOMENTUM).add_(grad)
    param.sub_(rate * momentum)


def _adam_state(nbytes: int, dtype: torch.dtype) -> Tensors:
    param, grad, mean, square = like(4)(nbytes, dtype)
    return param, grad, mean, square.square_()


CASES = (
    Case(adamw, _adam_state, written=(0, 2, 3), last="rate"),
    Case(lion, like(3), written=(0, 2), last="rate"),
    Case(sgd_momentum, like(3), written=(0, 2), last="rate"),
)
