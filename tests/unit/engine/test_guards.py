"""A compiled function answers as the original does, whatever changes between two calls."""

from __future__ import annotations

import copy
import pickle
import random
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fusebound.engine.compile import CompiledFunction, EagerNotice, Options, compile
from fusebound.errors import FallbackError
from fusebound.verify.draws import CountedDraws


def fused(fn: Callable[..., Any], **options: Any) -> CompiledFunction:
    return compile(
        fn, Options(**{"contest": False, "expected_calls": 10**9, "hardware": "cpu-avx512", **options})
    )


def rows(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2 + 1)


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    near = 1e-6 if a.dtype in (torch.float32, torch.float64) else 1e-2
    torch.testing.assert_close(a, b, rtol=near, atol=near, equal_nan=True)
    assert a.stride() == b.stride()


def test_shape_stride_and_type_changes_are_new_specializations() -> None:
    f = fused(rows)
    x = torch.randn(9, 33)
    for given in (x, x[:5], x.t(), x.double(), x.bfloat16(), x[:, ::2], x[:1].expand(9, 33), x):
        same(f(given), rows(given))
        assert f.executable is not None


def test_the_offset_of_a_view_is_no_specialization() -> None:
    f = fused(rows)
    x = torch.randn(50)
    f(x[:33])
    first = f.executable
    same(f(x[17:]), rows(x[17:]))
    assert f.executable is first


def test_keyword_arguments_in_any_order() -> None:
    def g(x: torch.Tensor, *, scale: float, shift: torch.Tensor) -> torch.Tensor:
        return x * scale + shift

    f = fused(g)
    x, s = torch.randn(33), torch.randn(33)
    same(f(x, scale=2.0, shift=s), g(x, scale=2.0, shift=s))
    same(f(x, shift=s, scale=2.0), g(x, scale=2.0, shift=s))
    same(f(x=x, shift=s, scale=3.0), g(x, scale=3.0, shift=s))


def test_a_route_knows_each_constant_by_its_place() -> None:
    """Where nothing but constants is given, and where there are more than ten."""

    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(9, 33), requires_grad=False)

        def forward(self, *flags: bool | None) -> torch.Tensor:
            return torch.relu(self.weight * 2 + 1) if flags[-1] else self.weight.neg() * 2

    eager = Scale()
    f = fused(eager)
    calls: list[tuple[bool | None, ...]] = [(True,), (False,), (True,) * 12, (*(True,) * 11, False)]
    for flags in calls:
        same(f(*flags), eager(*flags))
    newest_first = [[route.admits(flags) for route, _ in f._routes] for flags in reversed(calls)]
    assert newest_first == [[i == k for i in range(len(calls))] for k in range(len(calls))]


def test_a_default_argument_counts_by_value() -> None:
    def g(x: torch.Tensor, k: float = 2.0) -> torch.Tensor:
        return x * k + 1

    f = fused(g)
    x = torch.randn(33)
    for args in ((x,), (x, 2.0), (x, 3.0), (x, 3), (x, True)):
        same(f(*args), g(*args))


@pytest.mark.parametrize("values", [(0.5, 0.25), (1, 1.0, True), (float("nan"), float("inf")), (0.0, -0.0)])
def test_python_numbers_specialize(values: tuple[float, ...]) -> None:
    def g(x: torch.Tensor, k: float) -> torch.Tensor:
        return torch.copysign(x * 2, torch.tensor(k)) if isinstance(k, float) and k == 0 else x * k + 1

    f = fused(g)
    x = torch.randn(33)
    for k in (*values, *values):
        same(f(x, k), g(x, k))


def test_integers_keep_their_type() -> None:
    def g(x: torch.Tensor, k: float) -> torch.Tensor:
        return (x + k) * 2

    f = fused(g)
    x = torch.arange(33)
    for k in (1, 1.5, True):
        assert f(x, k).dtype == g(x, k).dtype
        same(f(x, k), g(x, k))


def test_strings_and_structures() -> None:
    def g(d: dict[str, Any], mode: str) -> dict[str, Any]:
        y = d["x"] * 2 + d["more"][0]
        return {"y": torch.relu(y) if mode == "relu" else y.abs(), "none": None, "l": [y, (y + 1,)], "n": 3}

    f = fused(g)
    given = {"x": torch.randn(33), "more": [torch.randn(33), None]}
    for mode in ("relu", "abs"):
        got, want = f(given, mode), g(given, mode)
        assert got.keys() == want.keys() and got["none"] is None and got["n"] == 3
        same(got["y"], want["y"])
        same(got["l"][1][0], want["l"][1][0])


def test_a_function_that_returns_nothing() -> None:
    def step(p: torch.Tensor, g: torch.Tensor) -> None:
        p.mul_(0.9).sub_(g * 0.1)

    f = fused(step)
    p, g = torch.randn(33), torch.randn(33)
    want = p.clone()
    step(want, g)
    assert f(p, g) is None
    same(p, want)


def test_closure_variables_are_read_at_every_call() -> None:
    k = 2.0

    def g(x: torch.Tensor) -> torch.Tensor:
        return x * k + 1

    f = fused(g)
    x = torch.randn(33)
    same(f(x), g(x))
    k = 3.0
    same(f(x), g(x))


scale = 2.0


def test_global_variables_are_read_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def g(x: torch.Tensor) -> torch.Tensor:
        return x * scale + 1

    f = fused(g)
    x = torch.randn(33)
    same(f(x), g(x))
    monkeypatch.setitem(globals(), "scale", 5.0)
    same(f(x), g(x))


def test_a_closure_tensor_is_read_by_reference() -> None:
    w = torch.randn(33)

    def g(x: torch.Tensor) -> torch.Tensor:
        return x * w + 1

    f = fused(g)
    x = torch.randn(33)
    same(f(x), g(x))
    w.add_(1)
    same(f(x), g(x))
    w = torch.randn(33)
    same(f(x), g(x))


class Scaled:
    factor = 2.0

    def __init__(self) -> None:
        self.more = {"shift": 1.0}

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        return self.times(x) + self.more["shift"]

    def times(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def test_attributes_of_objects_are_read_at_every_call() -> None:
    s = Scaled()
    f = fused(s.apply)
    x = torch.randn(33)
    same(f(x), s.apply(x))
    s.factor = 3.0
    same(f(x), s.apply(x))
    s.more["shift"] = 5.0
    same(f(x), s.apply(x))
    s.more = {"shift": 7.0}
    same(f(x), s.apply(x))


def helped(x: torch.Tensor) -> torch.Tensor:
    return x * scale + 1


def test_globals_of_helpers_are_read_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def g(x: torch.Tensor) -> torch.Tensor:
        return [helped(x) for _ in range(2)][1] * 2

    f = fused(g)
    x = torch.randn(33)
    same(f(x), g(x))
    monkeypatch.setitem(globals(), "scale", 7.0)
    same(f(x), g(x))


def test_containers_in_closures_are_read_at_every_call() -> None:
    weights, names = [2.0, 1.0], {"k": 0}

    def g(x: torch.Tensor) -> torch.Tensor:
        return x * weights[names["k"]] + len(weights)

    f = fused(g)
    x = torch.randn(33)
    same(f(x), g(x))
    weights[0] = 5.0
    same(f(x), g(x))
    names["k"] = 1
    same(f(x), g(x))
    weights.append(1.0)
    same(f(x), g(x))


class Tuned(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = 2.0
        self.mask = torch.ones(33)
        self.act: torch.nn.Module = torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x * self.gain + self.mask)


def test_attributes_of_modules_are_read_at_every_call() -> None:
    m = Tuned()
    f = fused(m)
    x = torch.randn(9, 33)
    same(f(x), m(x))
    assert f.executable is not None
    m.gain = -1.0
    same(f(x), m(x))
    m.mask = torch.zeros(33)
    same(f(x), m(x))
    m.act = torch.nn.Tanh()
    same(f(x), m(x))
    hook = m.register_forward_hook(lambda _, __, out: out + 1)
    same(f(x), m(x))
    hook.remove()
    same(f(x), m(x))


def test_a_module_in_a_closure_records_gradients() -> None:
    norm = torch.nn.LayerNorm(33)

    def g(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(norm(x) * 2)

    f = fused(g)
    x = torch.randn(9, 33)
    with torch.no_grad():
        same(f(x), g(x))
    with pytest.warns(EagerNotice, match="gradients"):
        assert f(x).requires_grad


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(33)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(torch.relu(self.norm(x + 1)))


def test_training_and_evaluation_are_told_apart() -> None:
    m = Block().eval()
    f = fused(m)
    x = torch.randn(9, 33)
    with torch.no_grad():
        same(f(x), m(x))
        m.train()
        torch.manual_seed(1)
        got = f(x)
        torch.manual_seed(1)
        with CountedDraws(1):
            same(got, m(x))
        assert (got == 0).float().mean() > 0.6
        m.eval()
        same(f(x), m(x))


def test_parameters_are_read_by_reference_and_may_change_type() -> None:
    m = Block().eval()
    f = fused(m)
    x = torch.randn(9, 33)
    with torch.no_grad():
        same(f(x), m(x))
        m.norm.weight.mul_(2)
        same(f(x), m(x))
        m.norm.weight = torch.nn.Parameter(torch.randn(33))
        same(f(x), m(x))
        m.norm.weight.data = torch.randn(33)
        same(f(x), m(x))
        m.half()
        same(f(x.half()), m(x.half()))
        m.double()
        same(f(x.double()), m(x.double()))


def test_a_method_of_a_module() -> None:
    m = Block().eval()
    f = fused(m.forward)
    x = torch.randn(9, 33)
    with torch.no_grad():
        same(f(x), m(x))
        m.norm.bias.add_(1)
        same(f(x), m(x))


def test_too_many_kinds_of_call_run_eagerly() -> None:
    def g(x: torch.Tensor, k: int) -> torch.Tensor:
        return x * k + 1

    f = fused(g)
    x = torch.randn(33)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for k in range(40):
            same(f(x, k), g(x, k))
    assert sum(issubclass(w.category, EagerNotice) for w in said) == 1


def test_eight_threads_share_one_function() -> None:
    f = fused(rows)
    shapes = [(9, 33), (5, 17), (40, 3), (1, 1)]
    faults: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            g = torch.Generator().manual_seed(seed)
            for k in range(60):
                x = torch.randn(shapes[(seed + k) % 4], generator=g)
                same(f(x), rows(x))
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults, faults[0]


def test_strict_raises_where_eager_would_run() -> None:
    f = fused(rows, strict=True)
    with pytest.raises(FallbackError, match="gradients"):
        f(torch.randn(33, requires_grad=True))


@pytest.mark.parametrize("layer", [torch.nn.LayerNorm, type("Own", (torch.nn.LayerNorm,), {})])
def test_attributes_of_the_frameworks_modules_are_read_at_every_call(layer: Any) -> None:
    m = torch.nn.Sequential(layer(33), torch.nn.LeakyReLU(), torch.nn.Softmax(-1))
    f = fused(m)
    x = torch.randn(9, 33)
    with torch.no_grad():
        same(f(x), m(x))
        for at, name, value in ((0, "eps", 1.0), (1, "negative_slope", 0.9), (2, "dim", 0)):
            setattr(m[at], name, value)
            same(f(x), m(x))


def test_what_hooks_reach_is_read_at_every_call() -> None:
    m = torch.nn.Sequential(torch.nn.ReLU())
    k = [3.0]
    f = fused(m)
    x = torch.randn(9, 33)
    first = m[0].register_forward_hook(lambda _m, _i, out: out * k[0] + 1)
    same(f(x), m(x))
    k[0] = 5.0
    same(f(x), m(x))
    first.remove()
    m[0].register_forward_hook(lambda _m, _i, out: out * 7 + 1)
    same(f(x), m(x))


@pytest.mark.filterwarnings("ignore::fusebound.engine.compile.EagerNotice")
@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_random_numbers_of_python_are_drawn_at_every_call(draw: Callable[[], float]) -> None:
    def g(x: torch.Tensor) -> torch.Tensor:
        return x * draw() + 1

    f = fused(g)
    x = torch.ones(33)
    found = []
    for h in (f, g):
        random.seed(1)
        np.random.seed(1)
        found.append([h(x) for _ in range(3)])
    for a, b in zip(*found, strict=True):
        same(a, b)


@pytest.mark.filterwarnings("ignore::fusebound.engine.compile.EagerNotice")
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_the_state_of_an_optimizer_survives_tracing(kind: Any) -> None:
    parameters = [torch.nn.Parameter(torch.randn(7, 5)) for _ in range(2)]
    parameters[1].data.copy_(parameters[0].data)
    mine, theirs = (
        kind([p], lr=0.1, **({"momentum": 0.9} if kind is torch.optim.SGD else {})) for p in parameters
    )
    f = fused(lambda: mine.step())
    for i in range(4):
        parameters[0].grad = torch.randn(7, 5)
        parameters[1].grad = parameters[0].grad.clone()
        if i == 2:
            mine.param_groups[0]["lr"] = theirs.param_groups[0]["lr"] = 0.5
        f()
        theirs.step()
        torch.testing.assert_close(*parameters)


@pytest.mark.parametrize("fn", [torch.std, torch.var])
def test_the_variance_of_one_number(fn: Any) -> None:
    def g(x: torch.Tensor) -> torch.Tensor:
        return fn(x, 0, correction=0) + 1

    f = fused(g)
    same(f(torch.tensor(2.0)), torch.tensor(1.0))
    assert not f.reason.startswith("E2")


@pytest.mark.filterwarnings("ignore::fusebound.engine.compile.EagerNotice")
def test_an_iterator_is_read_at_every_call() -> None:
    numbers = iter(range(100))
    f = fused(lambda x: x * next(numbers) + 1)
    for i in range(3):
        same(f(torch.ones(33)), torch.full((33,), i + 1.0))


def test_numbers_from_an_array_are_read_at_every_call() -> None:
    a = np.array([1.0, 2.0])
    f = fused(lambda x: x * float(a[1]) + 1)
    for k in (2.0, 5.0):
        a[1] = k
        same(f(torch.ones(33)), torch.full((33,), k + 1))
        assert f.executable is not None


def _turned(x: torch.Tensor) -> torch.Tensor:
    return x.add_(x.t()) * 2


def _moved(x: torch.Tensor) -> torch.Tensor:
    x[:, 1:].mul_(x[:, :-1])
    return x * 2


@pytest.mark.filterwarnings("ignore::fusebound.engine.compile.EagerNotice")
@pytest.mark.parametrize("g", [_turned, _moved])
def test_in_place_over_memory_that_is_read_is_left_to_eager(
    g: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    f = fused(g)
    a = torch.randn(17, 17)
    b = a.clone()
    same(f(a[1:, 1:]), g(b[1:, 1:]))
    same(a, b)
    assert f.executable is None


def test_in_place_between_interleaved_views_is_fused() -> None:
    def g(x: torch.Tensor) -> torch.Tensor:
        x[:, ::2].add_(x[:, 1::2]).mul_(2)
        return x * 2 + 1

    f = fused(g)
    a = torch.randn(16, 16)
    b = a.clone()
    same(f(a), g(b))
    same(a, b)
    assert f.executable is not None


def scaled(x: torch.Tensor) -> torch.Tensor:
    return (x * 2 + 1).relu()


def test_copies_and_pickles_are_compiled_anew() -> None:
    layer = torch.nn.LayerNorm(33)
    f = fused(layer)
    x = torch.randn(4, 33)
    with torch.no_grad():
        f(x)
        twin = copy.deepcopy(f)
        inner: Any = twin.fn
        inner.weight.fill_(3)
        torch.testing.assert_close(f(x), layer(x))
        torch.testing.assert_close(twin(x), layer(x) * 3)
    g = fused(scaled)
    g(x)
    again = pickle.loads(pickle.dumps(g))
    torch.testing.assert_close(again(x), scaled(x))
    assert again.options == g.options and again.executable is not None


@fused
def decorated(x: torch.Tensor) -> torch.Tensor:
    return (x * 3 + 1).relu()


class Holder:
    @staticmethod
    @fused
    def decorated(x: torch.Tensor) -> torch.Tensor:
        return (x * 4 + 1).relu()


def test_a_function_of_a_module_is_pickled_by_name() -> None:
    for f in (decorated, Holder.decorated):
        assert isinstance(f, CompiledFunction)
        assert pickle.loads(pickle.dumps(f)) is f is copy.deepcopy(f)
    other = fused(decorated)
    assert copy.deepcopy(other) is not other, "the name is another's"


@pytest.mark.parametrize(
    "like",
    [torch.zeros_like, torch.ones_like, lambda t: torch.full_like(t, 3)],
    ids=["zeros", "ones", "full"],
)
def test_a_constant_like_a_transposed_value_has_its_strides(like: Callable[..., Any]) -> None:
    def g(x: torch.Tensor) -> Any:
        y = (x * 2 + 1).relu()
        return like(y), y.sum(-1)

    f = fused(g)
    x = torch.randn(5, 16).t()
    for got, want in zip(f(x), g(x), strict=True):
        same(got, want)
    assert f.executable is not None
