"""A recommender's scorer at inference: embeddings, DCN-v2 cross layers, and a factorization machine."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FeatureCross(nn.Module):
    """dense is (batch, counts) float32, sparse (batch, fields) int64; the result is (batch,) click rates.

    Cross layers after Wang et al., "DCN V2"; the pair term is 0.5 * ((sum v)^2 - sum v^2) (Rendle, 2010).
    """

    offset: Tensor

    def __init__(self, dense: int, fields: int, rows: int, width: int, layers: int) -> None:
        super().__init__()
        features = dense + fields * width
        self.embedding = nn.Embedding(fields * rows, width)
        self.register_buffer("offset", rows * torch.arange(fields))
        self.cross = nn.ModuleList(nn.Linear(features, features) for _ in range(layers))
        self.score = nn.Linear(features, 1)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        vectors = self.embedding(sparse + self.offset)
        x0 = torch.cat((torch.log1p(dense), vectors.flatten(1)), dim=1)
        x = x0
        for layer in self.cross:
            x = x0 * layer(x) + x
        pairs = vectors.sum(dim=1).square() - vectors.square().sum(dim=1)
        return torch.sigmoid(self.score(x).squeeze(1) + 0.5 * pairs.sum(dim=1))


def build(*, small: bool = False) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The scorer with Criteo's layout: 13 counts, 26 categorical fields."""
    torch.manual_seed(0)
    batch, dense, fields, rows, width = (33, 3, 4, 50, 8) if small else (2048, 13, 26, 1000, 16)
    counts = torch.randint(0, 1000, (batch, dense)).float()
    sparse = torch.randint(rows, (batch, fields))
    return FeatureCross(dense, fields, rows, width, layers=3).eval(), (counts, sparse)
