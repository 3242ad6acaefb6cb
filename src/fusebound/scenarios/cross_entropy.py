"""The loss of a language model over a large vocabulary: capped logits, ignored positions, z-loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100
CAP = 30.0


def language_model_loss(logits: Tensor, target: Tensor) -> Tensor:
    """logits are (tokens, vocabulary) bfloat16, target (tokens,) int64; the result is a float32 scalar.

    Logits are capped as in Gemma 2; the z-loss keeps the softmax's normalizer near one (PaLM, section 5).
    """
    capped = CAP * torch.tanh(logits.float() / CAP)
    loss = F.cross_entropy(capped, target, ignore_index=IGNORED, reduction="none")
    loss = loss + 1e-4 * torch.logsumexp(capped, dim=-1).square()
    kept = target != IGNORED
    return (loss * kept).sum() / kept.sum()


def build(*, small: bool = False) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """The loss of 1024 tokens over a vocabulary of 32,768; one target in ten is padding."""
    torch.manual_seed(0)
    tokens, vocabulary = (17, 257) if small else (1024, 32_768)
    logits = (3 * torch.randn(tokens, vocabulary)).bfloat16()
    target = torch.randint(vocabulary, (tokens,))
    target[::10] = IGNORED
    return language_model_loss, (logits, target)
