"""Each trap of tracing is detected, names the user's line, and leaves no trace."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fusebound.capture.torch import capture
from fusebound.errors import CaptureError

HIDDEN = torch.ones(3)
COUNT = 0


def refused(code: str, fn: Callable[..., Any], *args: Any) -> CaptureError:
    with pytest.raises(CaptureError) as caught:
        capture(fn, args)
    assert caught.value.code == code, caught.value
    return caught.value


def test_mutated_global_tensor() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        HIDDEN.add_(1)
        return x * HIDDEN

    error = refused("E201", fn, torch.randn(2, 3))
    assert "HIDDEN" in error.what and "test_traps.py" in error.where
    assert torch.equal(HIDDEN, torch.ones(3))


def test_mutated_closure_tensor_by_index() -> None:
    memory = torch.zeros(4)

    def fn(x: torch.Tensor) -> torch.Tensor:
        memory[0] = 5.0
        return x + memory

    error = refused("E201", fn, torch.randn(4))
    assert "memory[0] = 5.0" in error.where or "memory" in error.where
    assert torch.equal(memory, torch.zeros(4))


def test_a_tied_parameter_is_written() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.b.weight.mul_(0.5)
            return self.b(self.a(x))

    m = Tied()
    before = m.a.weight.detach().clone()
    assert "self.b.weight.mul_(0.5)" in refused("E204", m, torch.ones(2, 3)).where
    assert torch.equal(m.a.weight, before)


def test_without_a_line_of_the_users_the_function_is_named() -> None:
    def reshaped(x: torch.Tensor) -> torch.Tensor:
        return x.unsqueeze_(0)

    def through_data(x: torch.Tensor) -> torch.Tensor:
        x.data.mul_(2)
        return x + 1

    for fn in (reshaped, through_data):
        line = fn.__code__.co_firstlineno
        assert refused("E200", fn, torch.ones(2, 3)).where.endswith(f"test_traps.py:{line}")
    averaged = torch.nn.BatchNorm2d(3, momentum=None)
    assert "batchnorm.py:" in refused("E205", averaged, torch.ones(2, 3, 4, 4)).where


def test_unregistered_tensor_of_a_module() -> None:
    class M(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache = [torch.zeros(3)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.cache[0].add_(x)
            return self.cache[0] * 2

    m = M()
    refused("E201", m, torch.ones(3))
    assert torch.equal(m.cache[0], torch.zeros(3))


def test_list_grows() -> None:
    log: list[int] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        log.append(1)
        return x + 1

    error = refused("E202", fn, torch.ones(3))
    assert "log" in error.what and "log.append(1)" in error.where
    assert log == []


def test_global_counter() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        global COUNT
        COUNT += 1
        return x + 1

    error = refused("E202", fn, torch.ones(3))
    assert "COUNT += 1" in error.where
    assert COUNT == 0


def test_closure_cell() -> None:
    calls = 0

    def fn(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return x + 1

    refused("E202", fn, torch.ones(3))
    assert calls == 0


def test_module_attribute() -> None:
    class M(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            return x * 2

    m = M()
    error = refused("E202", m, torch.ones(3))
    assert "self.steps += 1" in error.where
    assert m.steps == 0


def test_tensor_kept_on_a_module() -> None:
    class M(torch.nn.Module):
        last: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last = x * 2
            return x

    m = M()
    with pytest.raises(CaptureError):
        capture(m, (torch.ones(3),))
    assert m.last is None


def test_backward_inside() -> None:
    w = torch.ones(3, requires_grad=True)

    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            (x * w).sum().backward()
        return x + 1

    error = refused("E203", fn, torch.ones(3))
    assert "backward()" in error.where
    assert w.grad is None


@pytest.mark.parametrize("second", ["same", "overlapping"])
def test_one_tensor_twice_with_mutation(second: str) -> None:
    x = torch.ones(4)
    y = x if second == "same" else x[1:]

    def fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.mul_(2)
        return b + 1

    error = refused("E204", fn, x, y)
    assert "a.mul_(2)" in error.where
    assert torch.equal(x, torch.ones(4))


def test_one_tensor_twice_without_mutation() -> None:
    x = torch.ones(4)
    assert len(capture(lambda a, b: a * b, (x, x)).graph.inputs) == 2


def test_branch_on_a_value() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x
        return x + 1

    error = refused("E205", fn, torch.ones(3))
    assert "if x.sum() > 0" in error.where


def test_in_place_on_its_own_transpose() -> None:
    x = torch.randn(3, 3)
    with pytest.raises(RuntimeError):
        x.add_(x.t())

    def fn(a: torch.Tensor) -> torch.Tensor:
        return a.add_(a.t())

    error = refused("E206", fn, x)
    assert "a.add_(a.t())" in error.where


def test_in_place_on_a_shifted_slice_and_an_expanded_tensor() -> None:
    refused("E206", lambda a: a[1:].add_(a[:-1]), torch.randn(5))
    refused("E206", lambda a: a.expand(4, 3).add_(1), torch.randn(3))
    refused("E206", lambda a: a.expand(4, 3)[0].add_(1), torch.randn(3))
    refused("E206", lambda a: a.unfold(0, 2, 1)[:, 0].add_(1), torch.randn(3))
    refused("E206", lambda a: torch.add(a[:-1], 1, out=a[1:]), torch.randn(5))


def positive(x: torch.Tensor) -> torch.Tensor:
    """A tensor of a size that the run decides."""
    return x[x > 0]


def written_twice(x: torch.Tensor) -> torch.Tensor:
    v = positive(x)
    torch._foreach_add_([v, v.view(-1)], 1)
    return v


def copied_over(x: torch.Tensor) -> torch.Tensor:
    v = positive(x)
    v[1:].copy_(v[:-1])
    return v


def widened(x: torch.Tensor) -> torch.Tensor:
    v = positive(x)
    v.unsqueeze(0).expand(2, -1).add_(1)
    return v


@pytest.mark.parametrize("fn", [written_twice, copied_over, widened])
def test_in_place_on_a_tensor_of_which_the_size_is_not_known(fn: Callable[..., Any]) -> None:
    refused("E206", fn, torch.arange(-3.0, 3))


def test_a_tensor_of_unknown_size_is_written_at_its_very_elements() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        v = positive(x)
        v.mul_(2)
        v[1:].add_(1)
        return v.add_(v)

    capture(fn, (torch.arange(-3.0, 3),))


def changed_before(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x.as_strided((4,), (1,)) * 2


def changed_through(x: torch.Tensor) -> None:
    x.as_strided((4,), (1,)).add_(1)


@pytest.mark.parametrize("fn", [changed_before, changed_through])
def test_strides_of_its_own_on_an_argument_that_is_written(fn: Callable[..., Any]) -> None:
    refused("E206", fn, torch.arange(16.0).view(2, 8)[:, ::2])
    refused("E206", fn, torch.arange(16.0)[8:10])
    capture(fn, (torch.arange(16.0),))


@pytest.mark.parametrize(
    "fn",
    [
        lambda a: a.t_(),
        lambda a: a.mul_(2).transpose_(0, 1),
        lambda a: a.to(a.dtype).swapaxes_(0, 1),
        lambda a: a.type_as(a).t_(),
    ],
)  # fmt: skip
def test_an_argument_changes_its_shape(fn: Callable[..., Any]) -> None:
    x = torch.randn(3, 3)
    assert "shape of an argument" in refused("E202", fn, x).what
    assert x.shape == (3, 3)


def test_a_constant_made_inside_is_written_to_in_peace() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        w = torch.tensor([1.0, 2.0])
        return x * w.add_(1)

    captured = capture(f, (torch.ones(3, 2),))
    assert not captured.graph.mutations


def test_a_view_changes_its_own_shape() -> None:
    captured = capture(lambda a: a[1:].unsqueeze_(0) * 2, (torch.randn(5),))
    assert [captured.graph.values[v].shape for v in captured.graph.outputs] == [(1, 4)]


def test_in_place_with_itself_is_fine() -> None:
    x = torch.tensor([1.0, 2.0])
    captured = capture(lambda a: a.add_(a), (x,))
    assert len(captured.graph.mutations) == 1
    assert torch.equal(x, torch.tensor([1.0, 2.0]))


def test_python_number_is_guarded() -> None:
    captured = capture(lambda x, lr: x * lr, (torch.ones(3), 0.5))
    assert [value for _, value in captured.constants] == [0.5]
    assert len(captured.bind((torch.ones(3), 0.5))) == 1
    with pytest.raises(CaptureError) as caught:
        captured.bind((torch.ones(3), 0.25))
    assert caught.value.code == "E207"


def test_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    capture(lambda x: torch.nn.functional.dropout(x, 0.5), (torch.ones(8),))
    assert torch.equal(before, torch.get_rng_state())


def test_error_of_the_user_names_the_line() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(7)

    error = refused("E200", fn, torch.ones(3))
    assert "x + torch.ones(7)" in error.where


CALLS: dict[str, list[int]] = {}


def far(depth: int) -> Callable[[], None]:
    """A counter behind so many functions."""

    def count() -> None:
        CALLS.setdefault("far", []).append(1)

    f: Callable[[], Any] = count
    for _ in range(depth):
        f = (lambda inner: lambda: inner())(f)
    return f


class Slotted:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0

    def up(self) -> None:
        self.n += 1


class Class:
    n = 0


def function_attribute() -> None:
    function_attribute.n += 1


function_attribute.n = 0


def effects() -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """(what has an effect, what it changes) by the kind of place."""
    d, array, text, names, slotted = deque([0]), np.zeros(3), bytearray(3), SimpleNamespace(n=0), Slotted()
    nested = {"a": ({"b": [{"c": {"d": [0]}}]},)}
    return {
        "ten functions away": (far(10), lambda: dict(CALLS)),
        "deque": (lambda: d.append(1), lambda: list(d)),
        "numpy": (lambda: array.__setitem__(0, array[0] + 1), array.tolist),
        "bytearray": (lambda: text.__setitem__(0, text[0] + 1), lambda: bytes(text)),
        "namespace": (lambda: setattr(names, "n", names.n + 1), lambda: names.n),
        "slot": (slotted.up, lambda: slotted.n),
        "class": (lambda: setattr(Class, "n", Class.n + 1), lambda: Class.n),
        "function": (function_attribute, lambda: function_attribute.n),
        "nested": (lambda: nested["a"][0]["b"][0]["c"]["d"].append(1), lambda: str(nested)),
    }


@pytest.mark.parametrize("kind", effects())
def test_a_side_effect_is_seen_and_undone_wherever_it_lies(kind: str) -> None:
    act, read = effects()[kind]
    before = read()

    def fn(x: torch.Tensor) -> torch.Tensor:
        act()
        return x + 1

    refused("E202", fn, torch.ones(3))
    assert read() == before


def test_a_hook_with_a_side_effect() -> None:
    m, log = torch.nn.Sequential(torch.nn.ReLU()), [0]
    m[0].register_forward_hook(lambda _m, _i, out: log.append(1))
    refused("E202", m, torch.ones(3))
    assert log == [0]


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "default type": (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    "subnormal numbers": (
        lambda: torch.set_flush_denormal(True), lambda: (torch.tensor([1e-39]) * 1).item() > 0,
    ),
    "threads": (lambda: torch.set_num_threads(torch.get_num_threads() + 1), torch.get_num_threads),
    "algorithms": (
        lambda: torch.use_deterministic_algorithms(True), torch.are_deterministic_algorithms_enabled,
    ),
    "precision": (
        lambda: torch.set_float32_matmul_precision("medium"), torch.get_float32_matmul_precision,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "read"), SETTINGS.values(), ids=SETTINGS)
def test_a_setting_of_the_process(change: Callable[[], Any], read: Callable[[], Any]) -> None:
    before = read()

    def fn(x: torch.Tensor) -> torch.Tensor:
        change()
        return x + torch.ones(3)

    error = refused("E202", fn, torch.ones(3))
    assert "calls torch." in error.what and "lambda: torch." in error.where
    assert read() == before


def test_whether_gradients_are_recorded_is_set_inside() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), torch.set_grad_enabled(False):
            return x + torch.ones(3)

    assert capture(fn, (torch.ones(3),)).graph.outputs


@pytest.mark.parametrize("made", [ContextVar("k", default=1), ContextVar("k")], ids=["default", "none"])
def test_a_context_variable(made: ContextVar[int]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        made.set(made.get(1) + 1)
        return x * made.get()

    error = refused("E202", fn, torch.ones(3))
    assert "context variable k" in error.what and made.get(-1) == -1
