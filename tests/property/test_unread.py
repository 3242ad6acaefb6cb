"""What may be left out of a program, and so raises nothing: only operators that nothing reads."""

from __future__ import annotations

import pytest
import torch
from tests.property.unread import raises_unread

from fusebound.capture.torch import capture


def unread(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x.abs().index_fill_(0, i, 1)
    return x + 1


def unread_of_a_constant(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x.abs()[i] = 1
    return x + 1


def read(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x.abs().index_fill_(0, i, 1) + 1


def read_by_another_name(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y = x.abs()
    z = y.view(-1)
    y.index_fill_(0, i, 1)
    return z + 1


def writes_an_argument(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y = x + 1
    x.index_fill_(0, i, 1)
    return y


@pytest.mark.parametrize(
    ("fn", "dead"),
    [
        (unread, True),
        (unread_of_a_constant, True),
        (read, False),
        (read_by_another_name, False),
        (writes_an_argument, False),
    ],
)
def test_only_what_nothing_reads(fn, dead) -> None:
    inside, outside = torch.tensor([1]), torch.tensor([9])
    captured = capture(fn, (torch.ones(3), inside))
    assert not raises_unread(captured, (torch.ones(3), inside)), "nothing raises"
    assert raises_unread(captured, (torch.ones(3), outside)) == dead
