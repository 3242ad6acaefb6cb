"""`torch.compile(model, backend="fusebound")`: what it computes, records and mutates is eager's."""

from __future__ import annotations

import copy
import importlib.metadata
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.exc import BackendCompilerFailed
from torch.utils._python_dispatch import TorchDispatchMode

import fusebound
from fusebound.backend import dynamo
from fusebound.engine.compile import CompiledFunction, EagerNotice, Options
from fusebound.errors import UsageError

FUSED = Options(hardware="cpu-avx512", expected_calls=10**9, contest=False)
"""A table and a number of calls with which small shapes are fused, whatever the machine."""


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(16, 24)
        self.layer = torch.nn.LayerNorm(24)
        self.batch = torch.nn.BatchNorm1d(24)
        self.down = torch.nn.Linear(24, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.batch(self.layer(F.gelu(self.up(x)) * 2)))


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[CompiledFunction]:
    """What the backend compiles, in order."""
    found: list[CompiledFunction] = []

    def make(fn: Callable[..., Any]) -> CompiledFunction:
        found.append(CompiledFunction(fn, FUSED))
        return found[-1]

    monkeypatch.setattr(dynamo, "compile", make)
    return found


def compiled(fn: Callable[..., Any]) -> Any:
    return torch.compile(fn, backend=dynamo.fusebound)


def kernels(made: list[CompiledFunction]) -> list[int]:
    return [len(f.executable.kernels) if f.executable else 0 for f in made]


def test_training_steps_are_eagers(made: list[CompiledFunction]) -> None:
    mine = Net()
    theirs = copy.deepcopy(mine)
    fast, x, y = compiled(mine), torch.randn(12, 16), torch.randint(0, 5, (12,))
    steps = [torch.optim.SGD(m.parameters(), 0.1) for m in (mine, theirs)]
    for _ in range(3):
        for m, call, step in ((mine, fast, steps[0]), (theirs, theirs, steps[1])):
            step.zero_grad()
            F.cross_entropy(call(x), y).backward()
            step.step()
            assert all(p.grad is not None for p in m.parameters())
    for p, q in zip(
        (*mine.parameters(), *mine.buffers()), (*theirs.parameters(), *theirs.buffers()), strict=True
    ):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    forward, backward = made
    assert kernels(made)[0] == 1 and kernels(made)[1] >= 2, (forward.reason, backward.reason)


def test_gradients_of_inputs_and_of_views() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (F.silu(x[1:, ::2]) * F.softmax(x[:-1, 0:8], -1)).log_softmax(0)

    x = torch.randn(9, 16, requires_grad=True)
    fast = compiled(f)
    weights = torch.randn(8, 8)
    (mine,) = torch.autograd.grad((fast(x) * weights).sum(), x)
    (theirs,) = torch.autograd.grad((f(x) * weights).sum(), x)
    torch.testing.assert_close(mine, theirs)


def test_sizes_that_change(made: list[CompiledFunction]) -> None:
    net = Net().eval()
    fast = compiled(net)
    with torch.no_grad():
        for rows in (12, 7, 9, 12, 9):
            x = torch.randn(rows, 16)
            torch.testing.assert_close(fast(x), net(x))
    assert 1 <= len(made) <= 3  # one for the first size, one for all others
    assert all(kernels(made))


def test_arguments_that_are_written() -> None:
    def f(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total.add_(x).mul_(0.5)
        return F.relu(total) + 1

    fast = compiled(f)
    with torch.inference_mode():
        x = torch.randn(33, 5)
        totals = [torch.ones(33, 5), torch.ones(33, 5)]
        results = [g(x, t) for g, t in zip((fast, f), totals, strict=True)]
    torch.testing.assert_close(*totals)
    torch.testing.assert_close(*results)


def test_a_graph_break_and_autocast(made: list[CompiledFunction]) -> None:
    net = Net().eval()

    def f(x: torch.Tensor) -> torch.Tensor:
        h = F.gelu(x * 2) + 1
        torch._dynamo.graph_break()
        return net(h) * 3

    fast, x = compiled(f), torch.randn(12, 16)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), f(x))
        assert kernels(made) == [1, 1]
        with torch.autocast("cpu", torch.bfloat16):
            mine, theirs = fast(x), f(x)
    assert mine.dtype == theirs.dtype
    torch.testing.assert_close(mine, theirs)


def test_a_mistyped_option_is_named_with_those_that_there_are() -> None:
    fast = torch.compile(lambda x: x * 2, backend=dynamo.fusebound, options={"numeric": "eager"})
    with pytest.raises(Exception, match="no option 'numeric'") as raised:
        fast(torch.ones(3))
    cause = getattr(raised.value, "inner_exception", raised.value)
    assert isinstance(cause, UsageError) and "numerics" in cause.hint and "fn" not in cause.hint.split(", ")


class Counted(TorchDispatchMode):
    """A mode that compiled code has to respect, too."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.operators.append(func.name())
        return func(*args, **(kwargs or {}))

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True


@pytest.mark.parametrize("warm", [False, True])
def test_a_mode_of_the_users_sees_every_operator(warm: bool, made: list[CompiledFunction]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x * 2) + 1

    fast, x = compiled(f), torch.randn(12, 16)
    if warm:
        fast(x)
        assert kernels(made) == [1]
    with Counted() as mine, pytest.warns(EagerNotice, match="a dispatch mode"):
        fast(x)
    with Counted() as theirs:
        f(x)
    assert mine.operators == theirs.operators == ["aten::mul.Tensor", "aten::gelu", "aten::add.Tensor"]
    fast(x)
    assert kernels(made) == [1]


@pytest.mark.parametrize(
    ("given", "named"),
    [({"options": {"policy": "fast"}}, "fast"), ({"mode": "max-autotune"}, "max-autotune")],
)
def test_wrong_options_are_named(given: dict[str, Any], named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamo, "compile", fusebound.compile)
    fast = torch.compile(lambda x: x + 1, backend=dynamo.fusebound, **given)
    with pytest.raises(BackendCompilerFailed, match=named):
        fast(torch.ones(3))


def test_the_entry_point() -> None:
    (found,) = importlib.metadata.entry_points(group="torch_dynamo_backends", name="fusebound")
    assert found.load() is dynamo.fusebound
