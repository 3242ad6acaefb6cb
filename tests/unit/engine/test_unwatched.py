"""What a function reaches and cannot be watched: it runs eagerly, and each thing is used once a call."""

from __future__ import annotations

import io
import logging
import queue
import random
import sys
import threading
from array import array
from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.unit.engine.test_surroundings import CPU, Change, Place, Read, answers_follow

from fusebound.engine.compile import EagerNotice, Options, compile
from fusebound.engine.places import MANY


def large_array() -> tuple[Read, Change]:
    x = np.ones(1 << 14)
    return lambda: float(x[3]), lambda: x.__setitem__(3, x[3] + 1)


def endless_list() -> tuple[Read, Change]:
    x = [1.0] * (MANY + 1)
    return lambda: x[-1], lambda: x.__setitem__(-1, x[-1] + 1)


def a_variable_of_a_thread() -> tuple[Read, Change]:
    k = threading.local()
    k.x = 1.0
    return lambda: k.x, lambda: setattr(k, "x", k.x + 1)


def an_array() -> tuple[Read, Change]:
    a = array("d", [1.0])
    return lambda: a[0], lambda: a.__setitem__(0, a[0] + 1)


UNSEEN = (large_array, endless_list, a_variable_of_a_thread, an_array)


@pytest.mark.parametrize("place", UNSEEN, ids=lambda p: p.__name__)
def test_what_cannot_be_watched_runs_eagerly(place: Place) -> None:
    with pytest.warns(EagerNotice, match="may change unseen"):
        g = answers_follow(*place())
    assert g.executable is None


class Drawing:
    def __init__(self) -> None:
        self.own = random.Random(3)

    def draw(self) -> float:
        return self.own.uniform(1, 2)


class LayerDrop(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own = np.random.default_rng(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * self.own.random())


def filled() -> queue.Queue[float]:
    q = queue.Queue[float]()
    for i in range(1, 9):
        q.put(i)
    return q


def scaled_by(read: Read) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.relu(x * read())


MOVING: dict[str, Callable[[], Callable[[torch.Tensor], torch.Tensor]]] = {
    "Random": lambda: scaled_by((lambda r: lambda: r.random())(random.Random(3))),
    "its method": lambda: scaled_by(random.Random(3).random),
    "object": lambda: scaled_by(Drawing().draw),
    "Generator": lambda: scaled_by((lambda r: lambda: float(r.random()))(np.random.default_rng(3))),
    "its builtin method": lambda: scaled_by(np.random.default_rng(3).random),
    "RandomState": lambda: scaled_by((lambda r: lambda: float(r.rand()))(np.random.RandomState(3))),
    "module": LayerDrop,
    "Queue": lambda: scaled_by((lambda q: lambda: q.get())(filled())),
    "file": lambda: scaled_by((lambda f: lambda: float(f.readline()))(io.StringIO("1\n2\n3\n4\n5\n"))),
}


@pytest.mark.parametrize("make", MOVING.values(), ids=MOVING)
def test_what_moves_at_every_use_is_used_once_a_call(
    make: Callable[[], Callable[[torch.Tensor], torch.Tensor]],
) -> None:
    eager, g = make(), compile(make(), Options(expected_calls=10**9, hardware="cpu-avx512"))
    x = torch.rand(33)
    with pytest.warns(EagerNotice, match="may change unseen"):
        for _ in range(3):
            assert torch.equal(g(x), eager(x))


def test_loggers_standard_output_and_the_global_generators_may_be_reached() -> None:
    logger = logging.getLogger("fusebound.tests")
    logger.addHandler(logging.StreamHandler(sys.stderr))

    def f(x: torch.Tensor, loud: bool = False, noisy: bool = False) -> torch.Tensor:
        if loud:
            logger.warning("said")
            print("said", file=sys.stderr)
        return torch.relu(x * 2 + (random.uniform(0, 1) + np.random.rand() if noisy else 1))

    g = compile(f, CPU)
    assert torch.equal(g(torch.ones(9)), f(torch.ones(9))) and g.executable is not None
