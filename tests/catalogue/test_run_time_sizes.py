"""Sizes and numbers that only the run knows: eager's results for every value, and boundaries that say what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.catalogue.harness import PLANNED_FOR, call, compare, rand

from fusebound.capture import saved
from fusebound.capture.saved import captured_from_graph
from fusebound.capture.torch import Captured, capture
from fusebound.engine.build import build
from fusebound.engine.compile import Options, compile
from fusebound.errors import CaptureError, GraphError, UsageError
from fusebound.ir.text import parse_graph
from fusebound.plan.greedy import plan
from fusebound.runtime.executable import Executable
from fusebound.target import get

X = rand(64, 8)


def built(fn: Callable[..., Any], *args: Any) -> tuple[Executable, Captured]:
    captured, target = capture(fn, args), get(PLANNED_FOR)
    return build(plan(captured.graph, target=target, expected_calls=10**9), captured, target=target), captured


def number(n: int) -> torch.Tensor:
    return torch.tensor(n)


def size(n: torch.Tensor) -> Any:
    return n.item()


def masked(x: torch.Tensor) -> torch.Tensor:
    s = torch.sigmoid(x) * 2
    return (s[s > 1] * 2 + 1).exp()


def positions(x: torch.Tensor) -> torch.Tensor:
    rows = (x[:, 0] * 2 + 1).relu().nonzero().squeeze(1)
    return x[rows] * 2 + 1


def distinct(x: torch.Tensor) -> torch.Tensor:
    return (torch.unique((x * 3).floor().abs()) * 2 + 1).sqrt()


def selected(x: torch.Tensor) -> torch.Tensor:
    return torch.masked_select(x * 2 + 1, x > 0).mul(3).add(1)


def repeated(x: torch.Tensor) -> torch.Tensor:
    times = (x[:, 0].abs() * 2).long()
    return torch.repeat_interleave(x, times, dim=0) * 2 + 1


def counted(x: torch.Tensor) -> torch.Tensor:
    return torch.bincount((x[:, 0].abs() * 3).long()).float().sqrt() + 1


def suppressed(x: torch.Tensor) -> torch.Tensor:
    """Greedy suppression by rank: of neighbours closer than 0.1, the best remains."""
    scores, order = x[:, 0].sort(descending=True)
    places = x[order, 1]
    near = ((places[:, None] - places[None, :]).abs() < 0.1).triu(diagonal=1)
    keep = ~near.any(dim=0) & (scores > 0)
    return x[order][keep] * 2 + 1


def bounded(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(max=x.abs().mean().item()).exp() + 1


@pytest.mark.parametrize(
    "fn", [masked, positions, distinct, selected, repeated, counted, suppressed, bounded]
)
def test_results_whatever_the_size(fn: Callable[..., Any]) -> None:
    exe, captured = built(fn, X)
    assert {u.why for u in captured.graph.user_ops} >= {"F602"} or fn is counted
    for x in (X, rand(64, 8, seed=1), torch.zeros(64, 8) + 0.25, X.abs() + 1):
        compare(captured, (x,), call(exe, (x,)))


def test_a_fixed_length_from_a_checked_position_has_a_fixed_size() -> None:
    def f(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        k: Any = n.item()
        return x[k : k + 4] * 2 + 1

    def checked(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        k: Any = n.item()
        torch._check(k >= 0)
        torch._check(k + 4 <= x.shape[0])
        return x[k : k + 4] * 2 + 1

    made = built(f, X, number(5))[0].plan
    verdict = made.why("slice_1", made.graph.user_ops[-1].name).dependence
    assert verdict.code == "F602"
    assert verdict.counterfactual.startswith("torch._check(u0 >= 0) and torch._check(u0 + 4 <= 64)")
    exe, captured = built(checked, X, number(5))
    assert len(exe.kernels) == 1, "what the counterfactual promises"
    for k in (0, 5, 60):
        compare(captured, (X, number(k)), call(exe, (X, number(k))))
    for k in (-1, 61):
        with pytest.raises(RuntimeError):
            checked(X, number(k))
        with pytest.raises(RuntimeError):
            exe(X, number(k))


def test_a_check_of_a_value_is_repeated_at_every_call() -> None:
    def f(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        torch._check(n.item() != 3)
        return x * 2 + 1

    exe, captured = built(f, X, number(5))
    compare(captured, (X, number(4)), call(exe, (X, number(4))))
    with pytest.raises(RuntimeError):
        exe(X, number(3))


def test_equal_symbols_are_one_size() -> None:
    made = built(masked, X)[0].plan
    verdict = made.why("mul_2", "add_4").dependence
    size = next(e for e in verdict.evidence if e.quantity == "size of both")
    assert str(size.value).startswith("u")
    maker = made.graph.user["index"]
    assert verdict.message.endswith(
        f"works on {size.value} elements, as many as {maker.label} finds at run time"
    )


def test_a_number_that_was_read_is_named() -> None:
    verdict = built(bounded, X)[0].plan.why("clamp", "exp").dependence
    assert "takes a number that item" in verdict.message
    assert verdict.counterfactual == "keep the number a 0-d tensor, without item()"


def slice_beside(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    y = x[: size(n)] * 2
    return (y + torch.ones(5, 8)).exp() * 3


def factory(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return (x * 2 + torch.zeros(size(n), 8)).exp()


@pytest.mark.parametrize("fn, fits", [(slice_beside, 5), (factory, 64)])
def test_shapes_that_fit_for_one_number_only_run_eagerly(fn: Callable[..., Any], fits: int) -> None:
    with pytest.raises(CaptureError) as e:
        capture(fn, (X, number(fits)))
    assert e.value.code == "E210" and str(fits) in e.value.what
    compiled = compile(fn, Options(contest=False, hardware=PLANNED_FOR))
    with torch.no_grad(), pytest.warns(UserWarning, match="E210"):
        for n in (fits, 1):  # a size of 1 is broadcast
            torch.testing.assert_close(compiled(X, number(n)), fn(X, number(n)))
        with pytest.raises(RuntimeError):
            compiled(X, number(3))


def test_a_narrowed_tensor_has_its_length_wherever_it_starts() -> None:
    def f(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return torch.narrow(x, 0, size(n), 4) * 2 + 1

    exe, captured = built(f, X, number(5))
    for k in (0, 60):
        compare(captured, (X, number(k)), call(exe, (X, number(k))))
    with pytest.raises(RuntimeError):
        exe(X, number(61))


BELIEVED = """\
fusebound.graph 1 "believed"
%x = input user "x" : f32[64, 8]
%n = input user "n" : i64[] scalar
slice: aten.slice.Tensor(%x, 0, 0, %n) -> %slice opaque why "F602"
  %slice = aten.slice.Tensor(%x, %n) : f32[5, 8]
exp: aten.exp.default(%slice) -> %exp pointwise
  %exp = exp(%slice) : f32[5, 8]
neg: aten.neg.default(%exp) -> %neg pointwise
  %neg = neg(%exp) : f32[5, 8]
return %neg
"""


def test_a_graph_that_believes_a_size_is_refused() -> None:
    with pytest.raises(GraphError, match=r"slice gives float32\[1, 8\], the graph says float32\[5, 8\]"):
        captured_from_graph(parse_graph(BELIEVED))


def test_a_kernel_never_reads_beyond_what_an_operator_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second line of defence, at run time, where the first were open."""
    monkeypatch.setattr(saved, "_expect", lambda *_: None)
    captured, target = captured_from_graph(parse_graph(BELIEVED)), get(PLANNED_FOR)
    exe = build(plan(captured.graph, target=target, expected_calls=10**9), captured, target=target)
    assert len(exe.kernels) == 1
    torch.testing.assert_close(exe(X, 5), -X[:5].exp())
    with pytest.raises(UsageError, match=r"slice gives \[3, 8\], the plan was built for \[5, 8\]"):
        exe(X, 3)


def test_a_python_branch_on_a_value_is_one_diagnostic_and_a_where_fuses() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * 2
        return x - 1

    with pytest.raises(CaptureError) as e:
        capture(branch, (X,))
    assert e.value.code == "E205" and "if x.sum() > 0:" in e.value.where
    exe, _ = built(lambda x: torch.where(x.sum() > 0, x * 2, x - 1).exp(), X)
    assert len(exe.kernels) == 1 and len(exe.plan.groups) == 1
