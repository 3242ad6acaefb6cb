"""What tracing would drop of a function's effects on its arguments, on tensors and on modules is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from fusebound.capture.torch import capture
from fusebound.errors import CaptureError

Act = Callable[..., object]
HELD = torch.ones(3)


def refused(fn: Callable[..., Any], *args: Any, code: str = "E202") -> CaptureError:
    with pytest.raises(CaptureError) as caught:
        capture(fn, args)
    assert caught.value.code == code, caught.value
    return caught.value


def after(act: Act) -> Callable[..., torch.Tensor]:
    def fn(given: Any, x: torch.Tensor) -> torch.Tensor:
        act(given, x)
        return x + 1

    return fn


CONTAINERS: dict[str, tuple[Act, Callable[[], Any]]] = {
    "append": (lambda g, x: g.append(x * 2), lambda: [torch.ones(3)]),
    "pop": (lambda g, x: g.pop(), lambda: [torch.ones(3), torch.ones(3)]),
    "item of a list": (lambda g, x: g.__setitem__(0, x), lambda: [torch.ones(3)]),
    "order": (lambda g, x: g.reverse(), lambda: [torch.ones(3), torch.ones(3)]),
    "item of a dict": (lambda g, x: g.__setitem__("a", g["a"] * 2), lambda: {"a": torch.ones(3)}),
    "new key": (lambda g, x: g.setdefault("b", x), lambda: {"a": torch.ones(3)}),
    "nested": (lambda g, x: g["a"][0].append(x), lambda: {"a": ([torch.ones(3)],)}),
    "number": (lambda g, x: g.__setitem__(0, g[0] + 1), lambda: [1, torch.ones(3)]),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_container_that_is_an_argument_changes(kind: str) -> None:
    act, given = CONTAINERS[kind]
    error = refused(after(act), given(), torch.ones(3))
    assert "changes given" in error.what and "test_given.py" in error.where


def test_the_line_that_changes_an_argument_is_named() -> None:
    def fn(x: torch.Tensor, *, state: dict[str, torch.Tensor]) -> torch.Tensor:
        y = x * 2
        state["h"] = y
        return y + 1

    with pytest.raises(CaptureError) as caught:
        capture(fn, (torch.ones(3),), {"state": {"h": torch.ones(3)}})
    assert caught.value.code == "E202" and 'state["h"] = y' in caught.value.where


def parameter(grad: bool = False) -> torch.nn.Parameter:
    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3) if grad else None
    return p


TENSORS: dict[str, tuple[Act, Callable[[], Any], str]] = {
    "gradient": (lambda p, x: setattr(p, "grad", x * 2), parameter, "E202"),
    "a second gradient": (lambda p, x: setattr(p, "grad", p.grad + x), lambda: parameter(True), "E202"),
    "gradient removed": (lambda p, x: setattr(p, "grad", None), lambda: parameter(True), "E202"),
    "gradient written": (lambda p, x: p.grad.add_(x), lambda: parameter(True), "E201"),
    "attribute": (lambda v, x: setattr(v, "foo", x * 2), lambda: torch.ones(3), "E202"),
    "in a list": (lambda g, x: setattr(g[0], "foo", x), lambda: [torch.ones(3)], "E202"),
    "requires_grad_": (lambda v, x: v.requires_grad_(True), lambda: torch.ones(3), "E202"),
    "of a global": (lambda v, x: setattr(HELD, "foo", x), lambda: 1, "E202"),
    "gradient of a global": (lambda v, x: setattr(HELD, "grad", x * 2), lambda: 1, "E202"),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_what_a_tensor_carries_changes(kind: str) -> None:
    act, given, code = TENSORS[kind]
    error = refused(after(act), given(), torch.ones(3), code=code)
    assert "test_given.py" in error.where
    assert HELD.grad is None and not HELD.__dict__


class Held(torch.nn.Module):
    """A module of each kind of registered thing, whose `forward` does what it is told."""

    b: torch.Tensor

    def __init__(self, act: Act) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(3), requires_grad=False)
        self.register_buffer("on", None)
        self.register_buffer("b", torch.arange(3.0))
        self.register_buffer("h", torch.full((3,), 2.0))
        self.sub: Any = torch.nn.Module()
        self.sub.register_buffer("q", torch.ones(3))
        self.act = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.act(self, x)
        return x + self.b + self.sub.q


def contents(m: torch.nn.Module) -> list[Any]:
    tables = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_forward_hooks")
    return [list(getattr(part, t).items() if t != "_non_persistent_buffers_set" else getattr(part, t))
            for part in m.modules() for t in tables] + [sorted(part.__dict__) for part in m.modules()]  # fmt: skip


MODULES: dict[str, Act] = {
    "a buffer that is None": lambda s, x: setattr(s, "on", x * 2),
    "a new buffer": lambda s, x: s.register_buffer("k", x * 2),
    "a buffer not saved": lambda s, x: s.register_buffer("k", x * 2, persistent=False),
    "a new attribute": lambda s, x: setattr(s, "k", x * 2),
    "a submodule's new buffer": lambda s, x: s.sub.register_buffer("k", x * 2),
    "a submodule's attribute": lambda s, x: setattr(s.sub, "k", x * 2),
    "a buffer becomes None": lambda s, x: s.__setattr__("h", None),
    "a buffer goes": lambda s, x: s.__delattr__("h"),
    "a parameter": lambda s, x: setattr(s, "w", torch.nn.Parameter(x * 2, requires_grad=False)),
    "a new parameter": lambda s, x: s.register_parameter("k", torch.nn.Parameter(x * 2)),
    "a new module": lambda s, x: s.add_module("n", torch.nn.ReLU()),
    "a hook": lambda s, x: s.sub.register_forward_hook(lambda *_: None),
    "a parameter's gradient": lambda s, x: setattr(s.w, "grad", x * 2),
    "a parameter's flag": lambda s, x: s.w.requires_grad_(True),
    "a buffer's attribute": lambda s, x: setattr(s.b, "foo", x),
    "another shape": lambda s, x: setattr(s, "b", torch.stack((x, x))),
    "another type": lambda s, x: setattr(s, "b", s.b.double()),
}


@pytest.mark.parametrize("kind", MODULES)
def test_what_a_module_holds_changes_and_is_put_back(kind: str) -> None:
    m = Held(MODULES[kind])
    before = contents(m)
    assert "test_given.py" in refused(m, torch.ones(3)).where
    assert str(contents(m)) == str(before)
    assert not any(isinstance(t, FakeTensor) for t in (*m.parameters(), *m.buffers()))
    assert m.w.grad is None and not m.w.requires_grad and not m.b.__dict__


SHARED: dict[str, tuple[Act, str]] = {
    "one buffer for another": (lambda s, x: setattr(s, "b", s.h), "b and h"),
    "a view of another": (lambda s, x: setattr(s, "b", s.h[:]), "b and h"),
    "one new tensor twice": (lambda s, x: [setattr(s, k, n) for n in [x * 2] for k in ("b", "h")], "h and b"),
    "an argument": (lambda s, x: setattr(s, "b", x), "b and an argument"),
    "a global": (lambda s, x: setattr(s, "b", HELD), "b and a tensor from outside"),
}


@pytest.mark.parametrize("kind", SHARED)
def test_two_names_for_one_tensor(kind: str) -> None:
    act, names = SHARED[kind]
    assert f"makes {names} two names for one tensor" in refused(Held(act), torch.ones(3)).what


def test_a_tied_buffer_and_one_that_is_returned_get_a_new_tensor() -> None:
    def old(s: Any, x: torch.Tensor) -> torch.Tensor:
        before = s.b
        s.b = s.b + x
        return before[1:]

    m = Held(lambda s, x: setattr(s.sub, "q", s.sub.q + x))
    m.sub.q = m.b
    assert "two names for a buffer, sub.q" in refused(m, torch.ones(3)).what
    m = Held(old)
    m.forward = lambda x: old(m, x)
    error = refused(m, torch.ones(3))
    assert "returns what b held" in error.what and "s.b = s.b + x" in error.where


def test_a_buffer_with_two_names_is_written() -> None:
    norm = torch.nn.BatchNorm1d(3)
    norm.running_var = norm.running_mean
    error = refused(norm, torch.ones(4, 3), code="E204")
    assert "running_mean and running_var are two names for one buffer" in error.what


def test_an_assignment_to_a_buffer_is_its_mutation() -> None:
    """The framework forgets those of submodules, and takes another buffer behind one that is None."""

    def act(s: Any, x: torch.Tensor) -> None:
        s.b = s.b + x
        s.sub.q = s.sub.q * 3
        s.h = s.h.add_(1)

    m = Held(act)
    before = contents(m)
    graph = capture(m, (torch.ones(3),)).graph
    assert {i.target for i in graph.inputs if i.value in {t.target for t in graph.mutations}} == {
        "b", "sub.q", "h"
    }  # fmt: skip
    assert str(contents(m)) == str(before)


def test_a_function_assigns_to_a_buffer_of_a_module_that_it_names() -> None:
    m: Any = Held(lambda s, x: None)

    def fn(x: torch.Tensor) -> torch.Tensor:
        m.b = m.b + x
        return m.b * 2

    assert [t.target for t in capture(fn, (torch.ones(3),)).graph.mutations] == ["b_m_b"]
