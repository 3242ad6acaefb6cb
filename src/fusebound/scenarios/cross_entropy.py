"""The loss of a language model over a large vocabulary: cross-entropy with ignored positions, and z-loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100


def language_model_loss(logits: Tensor, target: Tensor) -> Tensor:
    """logits are (tokens, vocabulary) float32, target (tokens,) int64; the result is a scalar.

    The z-loss keeps the softmax's normalizer near one (PaLM, section 5).
    """
    loss = F.cross_entropy(logits, target, ignore_index=IGNORED)
    normalizer = torch.logsumexp(logits, dim=-1)
    return loss + 1e-4 * normalizer.square().mean()


def build(*, small: bool = False) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """The loss with 1024 tokens over a vocabulary of 32,768; one target in ten is padding."""
    torch.manual_seed(0)
    tokens, vocabulary = (17, 257) if small else (1024, 32_768)
    logits = 3 * torch.randn(tokens, vocabulary)
    target = torch.randint(vocabulary, (tokens,))
    target[::10] = IGNORED
    return language_model_loss, (logits, target)
