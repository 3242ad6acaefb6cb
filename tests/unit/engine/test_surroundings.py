"""What a function reaches besides its arguments may change between two calls, wherever it lies."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fusebound.engine.compile import EagerNotice, Options, compile
from fusebound.engine.surroundings import MANY, surroundings

Read = Callable[[], float]
Change = Callable[[], object]
Place = Callable[[], tuple[Read, Change]]


def answers_follow(read: Read, change: Change) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * read() + 1)

    g = compile(f, Options(contest=False, expected_calls=10**9, hardware="cpu-avx512"))
    x = torch.randn(33)
    for _ in range(2):
        torch.testing.assert_close(g(x), f(x))
        change()
    torch.testing.assert_close(g(x), f(x))
    return g


def large_dict() -> tuple[Read, Change]:
    d = {f"k{i}": float(i) for i in range(300)}
    return lambda: d["k3"], lambda: d.update(k3=d["k3"] + 1)


def large_list() -> tuple[Read, Change]:
    x = [float(i) for i in range(300)]
    return lambda: x[200], lambda: x.__setitem__(200, x[200] + 1)


def renamed_keys() -> tuple[Read, Change]:
    """The values stand in the same order under other names."""
    d = {"a": 1.0, "b": 2.0}

    def change() -> None:
        first, second = list(d)
        d.clear()
        d.update({second: 1.0, first: 2.0})

    return lambda: d["a"], change


def default_dict() -> tuple[Read, Change]:
    d = defaultdict(float, a=1.0)
    return lambda: d["a"], lambda: d.update(a=d["a"] + 1)


def ordered_dict() -> tuple[Read, Change]:
    d = OrderedDict(a=1.0, b=2.0)
    return lambda: next(iter(d.values())), lambda: d.move_to_end(next(iter(d)))


def a_set() -> tuple[Read, Change]:
    s = {"on"}
    return lambda: 2.0 if "on" in s else 3.0, lambda: s.symmetric_difference_update({"on"})


def a_deque() -> tuple[Read, Change]:
    d = deque([1.0, 2.0])
    return lambda: d[0], lambda: d.rotate()


@dataclass(slots=True)
class Slotted:
    k: float = 1.0


def a_slot() -> tuple[Read, Change]:
    s = Slotted()
    return lambda: s.k, lambda: setattr(s, "k", s.k + 1)


def named_by_a_string() -> tuple[Read, Change]:
    s = SimpleNamespace(k=1.0)
    return lambda: getattr(s, "k"), lambda: setattr(s, "k", s.k + 1)  # noqa: B009


def far_away() -> tuple[Read, Change]:
    """Behind ten functions and ten objects."""
    end = SimpleNamespace(k=1.0)
    chain = end
    for _ in range(10):
        chain = SimpleNamespace(next=chain)

    def last() -> float:
        x = chain
        while hasattr(x, "next"):
            x = x.next
        return x.k

    read: Read = last
    for _ in range(10):
        read = (lambda inner: lambda: inner())(read)
    return read, lambda: setattr(end, "k", end.k + 1)


PLACES: tuple[Place, ...] = (
    large_dict, large_list, renamed_keys, default_dict, ordered_dict, a_set, a_deque, a_slot, named_by_a_string,
    far_away,
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids=lambda p: p.__name__)
def test_a_change_is_seen(place: Place) -> None:
    assert answers_follow(*place()).executable is not None


@pytest.mark.parametrize(
    "hold", [lambda m: [m], lambda m: SimpleNamespace(inner={"m": m})], ids=["list", "object"]
)
def test_a_parameter_of_a_module_that_no_name_leads_to_is_replaced(
    hold: Callable[[torch.nn.Module], Any],
) -> None:
    norm = torch.nn.LayerNorm(33)
    held = hold(norm)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.relu((held[0] if isinstance(held, list) else held.inner["m"])(x) * 2)

    g = compile(f, Options(contest=False, expected_calls=10**9, hardware="cpu-avx512"))
    x = torch.randn(9, 33)
    with torch.no_grad():
        for k in range(3):
            torch.testing.assert_close(g(x), f(x))
            assert g.executable is not None
            norm.weight = torch.nn.Parameter(torch.full((33,), k + 2.0))


def large_array() -> tuple[Read, Change]:
    x = np.ones(1 << 14)
    return lambda: float(x[3]), lambda: x.__setitem__(3, x[3] + 1)


def endless_list() -> tuple[Read, Change]:
    x = [1.0] * (MANY + 1)
    return lambda: x[-1], lambda: x.__setitem__(-1, x[-1] + 1)


@pytest.mark.parametrize("place", [large_array, endless_list], ids=lambda p: p.__name__)
def test_what_cannot_be_watched_runs_eagerly(place: Place) -> None:
    with pytest.warns(EagerNotice, match="may change unseen"):
        g = answers_follow(*place())
    assert g.executable is None


def test_a_place_that_did_not_change_holds() -> None:
    read, change = large_dict()
    found = surroundings(read)
    assert found.holds() and found.key == surroundings(read).key
    change()
    assert not found.holds() and found.key != surroundings(read).key


x = torch.ones(3, requires_grad=True)
"""A global that no function here reads."""


@pytest.mark.parametrize(
    "read", [lambda d: d["x"], lambda d: getattr(SimpleNamespace(x=d["x"]), "x"), lambda d: SimpleNamespace(**d).x],  # noqa: B009
    ids=["key", "getattr", "attribute"],
)  # fmt: skip
def test_a_global_of_the_name_of_a_key_or_an_attribute_is_not_read(
    read: Callable[[Any], torch.Tensor],
) -> None:
    found = surroundings(lambda d: read(d) * 2 + 1)
    assert not found.grads and not found.beyond


def test_a_global_that_is_named_is_read() -> None:
    assert surroundings(lambda: [x for _ in range(2)]).grads


def test_a_variable_that_is_looked_up_by_name_cannot_be_watched() -> None:
    def variable(name: str) -> Any:
        return globals()[name]

    assert "globals()" in surroundings(lambda d: d * variable("x")).beyond
