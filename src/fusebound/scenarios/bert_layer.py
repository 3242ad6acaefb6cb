"""One encoder layer of BERT-base at inference: attention, exact GELU, post-norm residuals."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BertLayer(nn.Module):
    """x is (batch, length, dim) float32; mask is (batch, length), 1 where a token is real."""

    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(dim, dim) for _ in range(4))
        self.attention_norm = nn.LayerNorm(dim, eps=1e-12)
        self.intermediate = nn.Linear(dim, hidden)
        self.contract = nn.Linear(hidden, dim)
        self.output_norm = nn.LayerNorm(dim, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, dim = x.shape
        split = (batch, length, self.heads, dim // self.heads)
        q, k, v = (proj(x).view(split).transpose(1, 2) for proj in (self.query, self.key, self.value))
        bias = (1.0 - mask[:, None, None, :]) * torch.finfo(x.dtype).min
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(batch, 1, length, length))
        return self.output(mixed.transpose(1, 2).reshape(batch, length, dim))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention_norm(self.dropout(self.attend(x, mask)) + x)
        hidden = F.gelu(self.intermediate(x))
        return self.output_norm(self.dropout(self.contract(hidden)) + x)


def build(*, small: bool = False) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The layer, a batch of activations, and a padding mask with sentences of different lengths."""
    torch.manual_seed(0)
    batch, length, dim, heads, hidden = (2, 16, 64, 4, 256) if small else (4, 128, 768, 12, 3072)
    x = torch.randn(batch, length, dim)
    real = torch.randint(length // 2, length + 1, (batch, 1))
    mask = (torch.arange(length) < real).to(x.dtype)
    return BertLayer(dim, heads, hidden).eval(), (x, mask)
