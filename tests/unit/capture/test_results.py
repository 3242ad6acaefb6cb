"""Results are what eager returns: their flags, their types, and which objects they are."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusebound.capture.torch import capture
from fusebound.engine.compile import EagerNotice, Options, compile
from fusebound.errors import CaptureError

CPU = Options(contest=False, expected_calls=10**9, hardware="cpu-avx512")
HELD = [1, 2]
Pair = namedtuple("Pair", "x size")


def rows(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2 + 1)


def with_gradients(x: torch.Tensor) -> Any:
    with torch.enable_grad():
        return rows(x) * torch.ones(3, requires_grad=True)


WANTING: dict[str, Callable[[torch.Tensor], Any]] = {
    "result": lambda x: rows(x).requires_grad_(),
    "parameter": lambda x: torch.nn.Parameter(rows(x)),
    "frozen parameter": lambda x: torch.nn.Parameter(rows(x), requires_grad=False),
    "of an argument": lambda x: (rows(x), torch.nn.Parameter(x)),
    "constant": lambda x: (rows(x), torch.ones(3, requires_grad=True)),
    "recorded": with_gradients,
}


@pytest.mark.parametrize("fn", WANTING.values(), ids=WANTING)
def test_what_wants_gradients_is_returned_as_eager_does(fn: Callable[[torch.Tensor], Any]) -> None:
    def kinds(result: Any) -> list[Any]:
        return [(type(t), t.requires_grad) for t in (result if isinstance(result, tuple) else (result,))]

    g, x = compile(fn, CPU), torch.randn(3)
    with torch.no_grad(), pytest.warns(EagerNotice, match="E202"):
        assert kinds(g(x)) == kinds(fn(x))


def test_an_own_parameter_is_returned_as_it_is() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> Any:
            return rows(x) * self.w, self.w

    m = Tied()
    g = compile(m, CPU)
    with torch.no_grad():
        assert g(torch.randn(3))[1] is m.w
    assert g.executable is not None


def twice(x: torch.Tensor, _: list[torch.Tensor]) -> Any:
    made = [rows(x)]
    return made, (made,)


@pytest.mark.parametrize(
    "fn", [twice, lambda x, _: (rows(x), HELD), lambda x, held: (rows(x), held), lambda x, held: {"k": held}],
    ids=["twice", "reached", "given", "in another"],
)  # fmt: skip
def test_one_container_stays_one(fn: Callable[..., Any]) -> None:
    x = torch.randn(3)
    with pytest.raises(CaptureError, match="returns one list"):
        capture(fn, (x, [x]))


def test_new_containers_are_made_anew() -> None:
    g, x = compile(lambda x, held: ([rows(x)], [*held], {}), CPU), torch.randn(3)
    held = [x]
    assert torch.equal(g(x, held)[0][0], rows(x)) and g.executable is not None
    assert g(x, held)[1] is not held and g(x, held)[2] == {}


def test_the_size_of_a_tensor_is_a_size() -> None:
    def fn(x: torch.Tensor) -> Any:
        return Pair(rows(x), x.shape), [torch.Size([]), {"k": (1, rows(x))}]

    g, x = compile(fn, CPU), torch.randn(3)
    (pair, (empty, inner)) = g(x)
    assert g.executable is not None
    assert type(pair) is Pair and type(pair.size) is torch.Size and pair.size == (3,)
    assert type(empty) is torch.Size and torch.equal(inner["k"][1], rows(x))
