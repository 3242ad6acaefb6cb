"""A value with two readers that meet again, and residuals around them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.catalogue.harness import check, rand, special


def test_two_branches_meet() -> None:
    def diamond(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return torch.sigmoid(y) * torch.tanh(y)

    check(diamond, rand(9, 33))


def test_a_branch_that_reduces() -> None:
    def centred(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return y - y.mean(-1, keepdim=True)

    check(centred, rand(9, 33))
    check(centred, special(40, 17))


def test_residual_and_norm() -> None:
    def block(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        z = x + y
        return z + F.gelu(F.layer_norm(z, (33,), w, b))

    check(block, rand(7, 33), rand(7, 33, seed=1), rand(33), rand(33, seed=2))


def test_an_operand_twice() -> None:
    def square(x: torch.Tensor) -> torch.Tensor:
        y = x - 1
        return y * y + y

    check(square, rand(130))
