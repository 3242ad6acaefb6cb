"""What a function reaches besides its arguments may change between two calls, wherever it lies."""

from __future__ import annotations

import functools
import warnings
import weakref
from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from fusebound.engine.compile import EagerNotice, Options, compile
from fusebound.engine.surroundings import surroundings

CPU = Options(contest=False, expected_calls=10**9, hardware="cpu-avx512")
Read = Callable[[], float]
Change = Callable[[], object]
Place = Callable[[], tuple[Read, Change]]


def answers_follow(read: Read, change: Change) -> Any:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * read() + 1)

    g = compile(f, CPU)
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


def an_attribute_that_appears() -> tuple[Read, Change]:
    s = SimpleNamespace()
    return lambda: getattr(s, "k", 1.0), lambda: setattr(s, "k", getattr(s, "k", 1.0) + 1)


def an_attribute_of_a_function_that_appears() -> tuple[Read, Change]:
    def read() -> float:
        return getattr(read, "k", 1.0)

    return read, lambda: setattr(read, "k", read() + 1)


def a_class_attribute_that_hides_another() -> tuple[Read, Change]:
    class Base:
        k = 1.0

    class Derived(Base):
        pass

    return lambda: Derived.k, lambda: setattr(Derived, "k", Derived.k + 1)


def a_global_that_hides_a_builtin() -> tuple[Read, Change]:
    variables: dict[str, Any] = {}
    exec("def read():\n    return float(abs(-1))", variables)
    return variables["read"], lambda: variables.update(abs=lambda x: 2)


def the_code_of_a_function() -> tuple[Read, Change]:
    def read() -> float:
        return 1.0

    def other() -> float:
        return 2.0

    return lambda: read(), lambda: setattr(read, "__code__", other.__code__)


def a_default() -> tuple[Read, Change]:
    def read(k: float = 1.0) -> float:
        return k

    return lambda: read(), lambda: setattr(read, "__defaults__", (2.0,))


def a_default_by_name() -> tuple[Read, Change]:
    def read(*, k: float = 1.0) -> float:
        return k

    return lambda: read(), lambda: setattr(read, "__kwdefaults__", {"k": 2.0})


def a_user_dict() -> tuple[Read, Change]:
    d = UserDict(k=1.0)
    return lambda: d["k"], lambda: d.update(k=d["k"] + 1)


class Scaled(list[float]):
    factor = 1.0

    def __getitem__(self, i: Any) -> Any:
        return super().__getitem__(i) * self.factor


def what_a_special_method_reads() -> tuple[Read, Change]:
    x = Scaled([3.0])
    return lambda: x[0], lambda: setattr(x, "factor", x.factor + 1)


def a_view_of_a_dict() -> tuple[Read, Change]:
    d = {"k": 1.0}
    values, proxy = d.values(), MappingProxyType(d)
    return lambda: next(iter(values)) + proxy["k"], lambda: d.update(k=d["k"] + 1)


def a_context_variable() -> tuple[Read, Change]:
    k = ContextVar("k", default=1.0)
    return lambda: k.get(), lambda: k.set(k.get() + 1)


def the_size_of_a_tensor() -> tuple[Read, Change]:
    t = torch.zeros(3)
    return lambda: float(t.shape[0]), lambda: t.resize_(t.shape[0] + 1)


def an_attribute_of_a_tensor() -> tuple[Read, Change]:
    t: Any = torch.zeros(3)
    t.k = 1.0
    return lambda: t.k, lambda: setattr(t, "k", t.k + 1)


def a_weak_reference() -> tuple[Read, Change]:
    held = [Referred()]
    k = weakref.ref(held[0])
    return lambda: 1.0 if k() is None else 2.0, held.clear


def a_list_behind_its_method() -> tuple[Read, Change]:
    x = [1.0]
    item = x.__getitem__
    return lambda: item(0), lambda: x.__setitem__(0, x[0] + 1)


class Referred:
    pass


def read_by_two_functions() -> tuple[Read, Change]:
    s = SimpleNamespace(k=1.0, n=1.0)

    def first() -> float:
        return s.n

    def second() -> float:
        return s.k

    return lambda: first() + second(), lambda: setattr(s, "n", s.n + 1)


class Helpful(torch.nn.Module):
    k = 1.0

    def helper(self) -> float:
        return self.k


def what_another_method_of_a_module_reads() -> tuple[Read, Change]:
    m = Helpful()
    return lambda: m.helper(), lambda: setattr(m, "k", m.k + 1)


PLACES: tuple[Place, ...] = (
    large_dict, large_list, renamed_keys, default_dict, ordered_dict, a_set, a_deque, a_slot, named_by_a_string,
    far_away, an_attribute_that_appears, an_attribute_of_a_function_that_appears, a_class_attribute_that_hides_another,
    a_global_that_hides_a_builtin, the_code_of_a_function, a_default, a_default_by_name, a_user_dict,
    what_a_special_method_reads, a_view_of_a_dict, a_list_behind_its_method, a_context_variable, the_size_of_a_tensor,
    an_attribute_of_a_tensor, a_weak_reference, read_by_two_functions, what_another_method_of_a_module_reads,
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

    g = compile(f, CPU)
    x = torch.randn(9, 33)
    with torch.no_grad():
        for k in range(3):
            torch.testing.assert_close(g(x), f(x))
            assert g.executable is not None
            norm.weight = torch.nn.Parameter(torch.full((33,), k + 2.0))


def test_a_parameter_that_was_none_is_seen() -> None:
    class Shifted(torch.nn.Module):
        shift: torch.nn.Parameter | None

        def __init__(self) -> None:
            super().__init__()
            self.register_parameter("shift", None)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(x * 2 + 1)
            return y if self.shift is None else y + self.shift

    m = Shifted()
    g = compile(m, CPU)
    x = torch.randn(33)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(g(x), m(x))
        assert g.executable is not None
        m.shift = torch.nn.Parameter(torch.ones(33))
        torch.testing.assert_close(g(x), m(x))


def test_a_hook_around_every_module_runs() -> None:
    m = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Sigmoid())
    g = compile(m, CPU)
    x = torch.randn(33)
    g(x)
    assert g.executable is not None
    hook: Any = lambda module, args: (args[0] + 1,)  # noqa: E731
    with register_module_forward_pre_hook(hook), pytest.warns(EagerNotice, match="hooks run"):
        torch.testing.assert_close(g(x), m(x))


def test_a_place_that_did_not_change_holds() -> None:
    read, change = large_dict()
    found = surroundings(read)
    terms, scope = found.written_out()
    holds = eval(f"lambda: {' and '.join(terms)}", scope)
    assert holds() and found.key == surroundings(read).key
    change()
    assert not holds() and found.key != surroundings(read).key


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


@pytest.mark.parametrize(
    "ask", [
        lambda x: torch.is_grad_enabled(), lambda x: x.storage_offset(), lambda x: x._base is None,
        lambda x: x.grad is None, lambda x: getattr(x, "grad", 1) is None, lambda x: x._version,
        lambda x: x.untyped_storage().nbytes() if x.dim() else 0,
    ],
    ids=["grad mode", "offset", "base", "grad", "grad by name", "version", "storage"],
)  # fmt: skip
def test_what_tracing_would_answer_for_all_calls_is_not_asked(ask: Callable[[torch.Tensor], Any]) -> None:
    g = compile(lambda x: torch.relu(x * 2 + int(ask(x))), Options(contest=False, hardware="cpu-avx512"))
    with pytest.warns(EagerNotice, match="it asks"):
        for x in (torch.zeros(9), torch.zeros(13)[4:]):
            assert torch.equal(g(x), g.fn(x))


def test_the_gradient_of_an_argument_may_be_set_later() -> None:
    g = compile(lambda p: torch.relu(p * 2 - (0 if p.grad is None else p.grad)), CPU)
    p = torch.ones(9)
    with pytest.warns(EagerNotice, match="it asks for grad"):
        assert torch.equal(g(p), torch.full((9,), 2.0))
    p.grad = torch.ones(9)
    assert torch.equal(g(p), torch.ones(9))


def value(x: torch.Tensor, name: str) -> float:
    return getattr(x, name, 2.0)


@pytest.mark.parametrize(
    "read", [
        lambda x: getattr(x, "scale", 2.0), lambda x: value(x, "scale"), lambda x: vars(x).get("scale", 2.0),
        lambda x: x.scale if hasattr(x, "scale") else 2.0,
    ],
    ids=["getattr", "helper", "vars", "attribute"],
)  # fmt: skip
def test_an_attribute_that_an_argument_carries_is_read(read: Callable[[torch.Tensor], float]) -> None:
    g = compile(lambda x, y: torch.relu(x * read(x) + y), CPU)
    x, y = torch.ones(9), torch.ones(9)
    y.unasked = 3.0
    for _ in range(3):
        assert torch.equal(g(x, y), torch.full((9,), 3.0)) and g.executable is not None
    x.scale = 5.0
    with pytest.warns(EagerNotice, match="carries 'scale'"):
        assert torch.equal(g(x, y), torch.full((9,), 6.0))
    del x.scale
    assert torch.equal(g(x, y), torch.full((9,), 3.0)) and g.executable is not None


def test_a_function_that_asks_tensors_for_nothing_of_the_users_need_not_look() -> None:
    def f(x: torch.Tensor, d: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x.relu() + d["grad"], x.shape, eps=eps.value)

    eps = SimpleNamespace(value=1e-5)
    found = surroundings(f)
    assert found.asked == {"value"} and not found.beyond


def test_a_compiled_method_is_given_its_object() -> None:
    class Scaling:
        k = 3.0

        @functools.partial(compile, options=Options())
        def scaled(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.k

    with pytest.warns(EagerNotice, match="not a plain CPU tensor"):
        assert torch.equal(Scaling().scaled(torch.ones(3)), torch.full((3,), 3.0))


def test_an_object_that_answers_for_any_attribute_is_looked_at_with_care() -> None:
    class Table:
        held: dict[str, float]

        def __init__(self) -> None:
            self.held = {"k": 1.0}

        def __getattr__(self, name: str) -> float:
            return self.held[name]  # not an AttributeError, as it should be

    t = Table()
    answers_follow(lambda: t.k, lambda: t.held.update(k=2.0))


def test_an_argument_without_the_attributes_of_a_tensor_runs_eagerly() -> None:
    def f(x: Any, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + y)

    g = compile(f, CPU)
    x, y = torch.randn(2, 33)
    g(x, y)
    assert g.executable is not None
    with pytest.warns(EagerNotice, match="not a plain CPU tensor"):
        traced = torch.fx.symbolic_trace(lambda x, y: g(x, y))
    assert torch.equal(traced(x, y), f(x, y))


def test_an_inference_tensor_is_not_written_outside_inference_mode() -> None:
    g = compile(lambda x: torch.relu(x.mul_(2).add_(1)), Options(contest=False, hardware="cpu-avx512"))
    g(torch.ones(33))
    with torch.inference_mode():
        x = torch.ones(33)
    with (
        pytest.warns(EagerNotice, match="inference tensor"),
        pytest.raises(RuntimeError, match="Inplace update"),
    ):
        g(x)


def test_a_number_of_numpy_is_not_the_number_of_python_that_it_equals() -> None:
    g = compile(lambda x, k: torch.relu(x * k + 1), Options(contest=False, hardware="cpu-avx512"))
    x = torch.randn(33)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerNotice)
        for k in (3.0, np.float64(3.0), np.float64(4.0), 4.0):
            assert torch.equal(g(x, k), g.fn(x, k))


def test_what_parameters_carry_is_watched() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(40))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x * getattr(self.w, "scale", 2.0) + self.w)

    module, x = Scaled(), torch.ones(40)
    fused = compile(module, CPU)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerNotice)
        assert fused(x)[0] == 3 and fused.executable
        module.w.scale = 5.0  # pyright: ignore[reportAttributeAccessIssue]
        assert fused(x)[0] == 6 and "carries an attribute" in fused.reason
