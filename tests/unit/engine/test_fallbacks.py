"""What has no kernel runs eagerly, with eager's result and at most one notice."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from fusebound.engine.compile import CompiledFunction, EagerNotice, Options, compile


def fused(fn: Callable[..., Any]) -> CompiledFunction:
    return compile(fn, Options(contest=False, expected_calls=10**9, hardware="cpu-avx512"))


def rows(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2 + 1)


@contextmanager
def notices(count: int, match: str = "") -> Iterator[None]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield
    found = [str(w.message) for w in said if issubclass(w.category, EagerNotice)]
    assert len(found) == count, found
    assert all(match in text for text in found), found


def test_gradients_are_recorded_by_eager() -> None:
    f = fused(rows)
    x = torch.randn(33, requires_grad=True)
    with notices(1, "gradients"):
        for _ in range(3):
            f(x).sum().backward()
    torch.testing.assert_close(x.grad, 3 * 2 * ((x * 2 + 1) > 0).float())
    with torch.no_grad():
        assert not f(x).requires_grad


def test_a_module_with_parameters_records_gradients_outside_of_no_grad() -> None:
    m = torch.nn.Sequential(torch.nn.LayerNorm(33), torch.nn.ReLU())
    f = fused(m)
    with notices(1, "gradients"):
        f(torch.randn(4, 33)).sum().backward()
    assert m[0].weight.grad is not None


KINDS: dict[str, Callable[[], Any]] = {
    "complex": lambda: torch.randn(5, 7, dtype=torch.complex64),
    "conjugate": lambda: torch.randn(5, 7, dtype=torch.complex64).conj(),
    "negative view": lambda: torch._neg_view(torch.randn(5, 7)),
    "sparse": lambda: torch.randn(5, 7).to_sparse(),
    "compressed": lambda: torch.randn(5, 7).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.randn(2), torch.randn(3)]),
    "quantized": lambda: torch.quantize_per_tensor(torch.randn(5, 7), 0.1, 0, torch.qint8),
    "mkldnn": lambda: torch.randn(5, 7).to_mkldnn(),
    "meta": lambda: torch.randn(5, 7, device="meta"),
    "no elements": lambda: torch.zeros(0, 7),
    "no axes": lambda: torch.tensor(2.0),
    "eight bits": lambda: torch.ones(5, 7, dtype=torch.float8_e4m3fn),
    "unsigned": lambda: torch.ones(5, 7, dtype=torch.uint16),
    "a number": lambda: 3,
    "a string": lambda: "a",
    "nothing": lambda: None,
    "a list": lambda: [torch.randn(5)],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds_of_argument(kind: str) -> None:
    def g(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + x

    f = fused(g)
    f(torch.randn(5, 7))
    f(torch.randn(5, 7))
    assert f.executable is not None
    x = KINDS[kind]()
    assert described(f, x) == described(g, x)


def described(f: Callable[..., Any], x: Any) -> Any:
    """The kind and values of a result, or the kind of exception."""
    try:
        y = f(x)
    except Exception as why:
        return type(why)
    if not isinstance(y, torch.Tensor):
        return y
    text = "" if y.device.type == "meta" else str(y)
    return y.dtype, y.layout, y.is_nested or y.shape, y.is_conj(), text


def test_a_subclass_of_tensor_keeps_its_class() -> None:
    class Marked(torch.Tensor):
        pass

    f = fused(rows)
    x = torch.randn(33).as_subclass(Marked)
    with notices(1):
        assert isinstance(f(x), Marked)


def test_vmap_autocast_and_modes() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    f = fused(rows)
    x = torch.randn(4, 33)
    seen: list[str] = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with notices(1, "mode"):
        torch.testing.assert_close(torch.vmap(f)(x), rows(x))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(f(x), rows(x))
        with Log():
            torch.testing.assert_close(f(x), rows(x))
        torch.testing.assert_close(torch.func.jvp(f, (x,), (x,)), torch.func.jvp(rows, (x,), (x,)))
        torch.testing.assert_close(torch.func.grad(lambda x: f(x).sum())(x), 2 * (x * 2 + 1 > 0).float())
    assert any("mul" in s for s in seen)


def test_inference_mode_gives_inference_tensors() -> None:
    f = fused(rows)
    x = torch.randn(33)
    with torch.inference_mode():
        inside = f(x)
        torch.testing.assert_close(inside, rows(x))
    assert not f(x).is_inference()


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FB_DISABLE", "1")
    f = fused(rows)
    monkeypatch.delenv("FB_DISABLE")
    with notices(0):
        torch.testing.assert_close(f(torch.ones(33)), torch.full((33,), 3.0))
    assert f.executable is None
    g = fused(rows)
    g(torch.ones(33))
    assert g.executable is not None


def test_one_tensor_passed_twice_and_written() -> None:
    def g(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return (x + y) * 2

    f = fused(g)
    x = torch.randn(33)
    want = x.clone()
    expected = g(want, want)
    with notices(1):
        torch.testing.assert_close(f(x, x), expected)
    torch.testing.assert_close(x, want)


def outcome(f: Callable[..., Any], *args: torch.Tensor) -> Any:
    """The result, or the kind of exception."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EagerNotice)
            return f(*args)
    except RuntimeError:
        return RuntimeError


@pytest.mark.parametrize("cut", [(0, 33, 1, 34), (0, 33, 16, 49), (0, 33, 33, 66), (5, 38, 5, 38)], ids=str)
def test_slices_of_one_memory(cut: tuple[int, int, int, int]) -> None:
    def g(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2).add_(y)
        return y * 3 + x

    a, b, c, d = cut
    f = fused(g)
    f(torch.randn(33), torch.randn(33))
    memory = torch.randn(80)
    want = memory.clone()
    expected = outcome(g, want[a:b], want[c:d])
    got = outcome(f, memory[a:b], memory[c:d])
    assert type(got) is type(expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(got, expected)
    torch.testing.assert_close(memory, want)


@pytest.mark.parametrize("steps", [1, 2], ids=["dense", "every other"])
def test_two_views_of_one_memory_that_are_only_read(steps: int) -> None:
    """Tracing takes them apart; the strides that kernels are compiled for stay the arguments'."""
    memory = torch.randn(8, 66)

    def g(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * 3 + y

    f = fused(g)
    x, y = memory[:, :33:steps], memory[:, 1:34:steps]
    for _ in range(3):
        torch.testing.assert_close(f(x, y), g(x, y))
    assert f.executable is not None


def test_one_element_behind_many_indices() -> None:
    def g(x: torch.Tensor) -> torch.Tensor:
        y = x / 1.5
        x[..., :1].add_(1)
        return y.exp() * 2

    f = fused(g)
    x = torch.randn(1).expand(15)
    want = x[:1].clone().expand(15)
    expected = g(want)
    torch.testing.assert_close(outcome(f, x), expected)
    torch.testing.assert_close(x, want)


def test_an_expanded_tensor_that_is_written_raises_as_eager_does() -> None:
    def g(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2).add_(1)
        return x * 3

    f = fused(g)
    x = torch.randn(1, 33).expand(4, 33)
    with pytest.raises(RuntimeError), warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerNotice)
        f(x)


def test_a_branch_on_a_value_runs_eagerly() -> None:
    def g(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x - 1

    f = fused(g)
    with notices(1):
        torch.testing.assert_close(f(torch.ones(5)), torch.full((5,), 2.0))
        torch.testing.assert_close(f(-torch.ones(5)), torch.full((5,), -2.0))


def test_what_eager_raises_is_raised() -> None:
    def g(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y + 1

    f = fused(g)
    with pytest.raises(RuntimeError, match=r"mat1 and mat2|size mismatch"), warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerNotice)
        f(torch.randn(3, 4), torch.randn(3, 4))


def test_versions_of_written_inputs_move() -> None:
    def g(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2).add_(1)
        return x * 3

    f = fused(g)
    x = torch.randn(33)
    before = x._version
    f(x)
    assert f.executable is not None and x._version > before


def test_what_eager_raises_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    f = fused(lambda x, y: (x + y).relu())
    assert outcome(f, torch.ones(3), torch.ones(4)) is RuntimeError
    assert capfd.readouterr().err == ""
