"""A decoder block of the LLaMA family, forward only: RMSNorm, rotary embedding, causal attention, SwiGLU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis, written out as model files write it."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.eps))


def rotary_table(length: int, head_dim: int, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """cos and sin of shape (length, head_dim), both halves alike."""
    frequency = base ** (-torch.arange(0, head_dim, 2) / head_dim)
    angle = torch.arange(length)[:, None] * frequency
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (i, i + half) of the last axis."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, dim = x.shape
        split = (batch, length, self.heads, dim // self.heads)
        q, k, v = (proj(x).view(split).transpose(1, 2) for proj in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, dim))


class SwiGLU(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class TransformerBlock(nn.Module):
    """Pre-norm residual block; x is (batch, length, dim) float32."""

    def __init__(self, dim: int, heads: int, hidden: int, length: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = RMSNorm(dim), RMSNorm(dim)
        self.attention = Attention(dim, heads)
        self.mlp = SwiGLU(dim, hidden)
        cos, sin = rotary_table(length, dim // heads)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), self.cos, self.sin)
        return x + self.mlp(self.mlp_norm(x))


def build(*, small: bool = False) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The block and one batch of activations."""
    torch.manual_seed(0)
    dim, heads, hidden, length = (64, 4, 176, 16) if small else (1024, 16, 2816, 256)
    return TransformerBlock(dim, heads, hidden, length).eval(), (torch.randn(1, length, dim),)
