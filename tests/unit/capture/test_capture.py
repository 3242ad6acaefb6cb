"""What `capture` keeps of the user's function: structure, state, mutation, names, lines, boundaries."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.unit.capture.interp import interpret, run
from torch import nn

from fusebound.capture.replay import call, inputs_of, resolve, split_target
from fusebound.capture.saved import captured_from_graph
from fusebound.capture.torch import Captured, capture
from fusebound.errors import CaptureError, FormatError, UsageError
from fusebound.ir.graph import Ref, Sym, Token, UserOp
from fusebound.ir.names import find
from fusebound.ir.spec import verify
from fusebound.ir.text import parse_graph, print_graph

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.act = nn.GELU()
        self.lin = nn.Linear(4, 4)
        self.bn = nn.BatchNorm1d(4)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.bn(self.act(self.lin(self.norm(x))))


def outputs(captured: Captured, *args: Any, **kwargs: Any) -> Any:
    return captured.unflatten(interpret(captured, args, kwargs)[: len(captured.graph.outputs)])


def test_nested_inputs_and_outputs() -> None:
    def fn(
        pair: tuple[torch.Tensor, dict[str, torch.Tensor]], *, scale: float, extra: torch.Tensor | None = None
    ) -> Any:
        a, rest = pair
        b = rest["b"] * scale
        return {"sum": a + b, "same": a, "none": extra, "twice": [b, b], "number": 3, "text": "x"}

    args = ((X, {"b": X + 1}),)
    captured = capture(fn, args, {"scale": 2.0})
    verify(captured.graph)
    got = outputs(captured, *args, scale=2.0)
    want = fn(*args, scale=2.0)
    assert list(got) == list(want)
    assert torch.equal(got["sum"], want["sum"]) and got["same"] is X
    assert got["none"] is None and got["number"] == 3 and got["text"] == "x"
    assert got["twice"][0] is got["twice"][1]


def test_keywords_in_another_order_and_missing_ones() -> None:
    captured = capture(lambda x, *, a, b: x + a - b, (X,), {"a": X, "b": X * 2})
    first = captured.bind((X,), {"b": X * 2, "a": X})
    assert torch.equal(first[captured.graph.input_ids.index("a")], X)
    with pytest.raises(UsageError):
        captured.bind((X,), {"a": X})


def test_output_that_is_an_input_or_a_constant() -> None:
    captured = capture(lambda x: (x, x.view(3, 4), torch.ones(2)), (X,))
    assert captured.graph.outputs[:2] == ("x", "view")
    assert torch.equal(outputs(captured, X)[2], torch.ones(2))


def test_parameters_are_bound_by_reference() -> None:
    m = Block().eval()
    captured = capture(m, (X,))
    values = dict(zip((i.target for i in captured.graph.inputs), captured.bind((X,)), strict=True))
    assert values["lin.weight"] is m.lin.weight and values["count"] is m.count
    m.lin.weight = nn.Parameter(torch.zeros(4, 4))
    values = dict(zip((i.target for i in captured.graph.inputs), captured.bind((X,)), strict=True))
    assert values["lin.weight"] is m.lin.weight
    kinds = {i.target: i.kind for i in captured.graph.inputs}
    assert kinds["lin.weight"] == "param" and kinds["bn.running_var"] == "buffer" and kinds["x"] == "user"


def test_modules_and_tensors_that_a_plain_function_reaches() -> None:
    lin, shift = nn.Linear(4, 4), torch.full((4,), 0.5)
    captured = capture(lambda x: torch.relu(lin(x)) + shift, (X,))
    assert {i.target for i in captured.graph.inputs if i.kind == "param"} == {"lin.weight", "lin.bias"}
    before = outputs(captured, X)
    with torch.no_grad():
        shift.add_(1)
        lin.bias.zero_()
    assert torch.allclose(outputs(captured, X), torch.relu(lin(X)) + shift)
    assert not torch.allclose(before, outputs(captured, X))


def test_modules_are_found_through_helpers_and_unused_state_is_no_input() -> None:
    float = nn.Linear(4, 4)  # a name that every module has as a method
    unused = nn.BatchNorm1d(4)

    def helper(x: torch.Tensor) -> torch.Tensor:
        return float(x) if x.dim() == 2 else unused(x)

    graph = capture(partial(lambda x, k: helper(x) * k, k=2), (X,)).graph
    assert {i.target for i in graph.inputs if i.kind == "param"} == {"float_.weight", "float_.bias"}
    assert not [i for i in graph.inputs if i.kind == "buffer"]


@pytest.mark.parametrize("fn", [torch.exp, partial(torch.add, alpha=2.0), F.gelu])
def test_builtins_and_partials(fn: Any) -> None:
    args = (X, X) if isinstance(fn, partial) else (X,)
    assert torch.allclose(outputs(capture(fn, args), *args), fn(*args))


def test_mutations_of_inputs_and_buffers() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        y[0] = x[1]
        return x + y

    captured = capture(fn, (X.clone(), X.clone()))
    assert [m.target for m in captured.graph.mutations] == ["x", "y"]
    a, b = X.clone(), X.clone()
    want = fn(a, b)
    out, new_x, new_y = interpret(captured, (X.clone(), X.clone()))
    assert torch.equal(out, want) and torch.equal(new_x, a) and torch.equal(new_y, b)
    assert captured.graph.user["mul"].written == "aten.mul_.Tensor"

    m = Block()
    targets = {m.target for m in capture(m, (X,)).graph.mutations}
    assert targets == {"b_count", "b_bn_running_mean", "b_bn_running_var", "b_bn_num_batches_tracked"}


def test_names_scopes_and_lines() -> None:
    model = nn.Sequential(Block(), Block()).eval()
    graph = capture(model, (X,)).graph
    assert find(graph, "1.act").target == "aten.gelu.default"
    assert find(graph, "1.act").scope == "1.act"
    act = graph.user["gelu"]
    assert act.source.file.endswith("test_capture.py") and "self.act(" in act.source.code
    assert graph.user["batch_norm"].target == "aten.batch_norm.default"
    assert graph.user["batch_norm"].outputs == ("batch_norm",)

    def helper(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    op = capture(lambda x: helper(x) + 1, (X,)).graph.user["mul"]
    assert op.source.code == "return x * 3"


def test_composites_stay_whole() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        q = x.view(1, 1, 3, 4)
        y = F.scaled_dot_product_attention(q, q, q).view(3, 4)
        return F.softmax(F.layer_norm(F.gelu(y), (4,)), -1)

    graph = capture(fn, (X,)).graph
    kinds = {u.name: (u.kind, u.why) for u in graph.user_ops}
    assert kinds["scaled_dot_product_attention"] == ("contract", "F607")
    assert kinds["softmax"] == kinds["layer_norm"] == ("reduce", "") and kinds["gelu"] == ("pointwise", "")


def test_rounding_points_of_half_precision() -> None:
    x = X.bfloat16()
    graph = capture(lambda x: F.layer_norm(x, (4,)) + x * 2, (x,)).graph
    inside = [graph.values[n.out].dtype for n in graph.members["layer_norm"]]
    assert inside[0] == "float32" and inside[-1] == "bfloat16"
    assert [graph.values[n.out].dtype for n in graph.members["add"]] == ["bfloat16"]
    cast = capture(lambda x: x.to(torch.bfloat16) + 1, (X,)).graph.nodes[0]
    assert cast.op == "cast" and cast.attr("user") is True


@pytest.mark.parametrize(
    ("fn", "x", "kind", "code"),
    [
        (lambda x: x @ x.t(), X, "contract", "F607"),
        (lambda x: x.cumsum(0), X, "scan", "F608"),
        (lambda x: torch.multinomial(x.abs(), 2), X, "random", "F606"),
        (lambda x: torch.fft.fft(x).real, X, None, "F604"),
        (lambda x: x[x > 0], X, "opaque", "F602"),
        (lambda x: x * (1 + 1j), X, "opaque", "F604"),
        (lambda x: x.to(torch.float8_e4m3fn).float(), X, "opaque", "F604"),
        (lambda x: F.pad(x, (1, 1), mode="reflect"), X, "opaque", "F610"),
        (lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)), X, "opaque", "F603"),
    ],
)
def test_boundaries(fn: Any, x: torch.Tensor, kind: str | None, code: str) -> None:
    captured = capture(fn, (x,))
    verify(captured.graph)
    found = [(u.kind, u.why) for u in captured.graph.user_ops if u.why]
    assert code in {why for _, why in found}
    assert kind is None or (kind, code) in found
    if code != "F606":
        assert torch.equal(outputs(captured, x), fn(x))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint64, torch.float8_e8m0fnu], ids=str)
def test_types_without_kernels_have_a_form(dtype: torch.dtype) -> None:
    graph = capture(lambda x: x.clone(), (torch.zeros(3, dtype=dtype),)).graph
    verify(graph)
    assert parse_graph(print_graph(graph)) == graph
    assert graph.user["clone"].why == "F604" and graph.values["clone"].nbytes == 3 * dtype.itemsize


def test_sparse_tensors_stay_with_the_framework() -> None:
    x = X.to_sparse()
    captured = capture(lambda x: x * 2, (x,))
    assert captured.graph.user["mul"].why == "F604"
    assert torch.equal(outputs(captured, x).to_dense(), X * 2)


def test_capture_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CaptureError):
        capture(lambda x: x * 2 if x.max().item() > 3 else x, (X,))
    assert capfd.readouterr() == ("", "")


def test_sizes_known_only_at_run_time() -> None:
    captured = capture(lambda x: (x[x > 0] * x.sum().item()).sum(), (X,))
    verify(captured.graph)
    shapes = [v.shape for v in captured.graph.values.values() if not v.is_static]
    assert shapes and all(isinstance(d, Sym) and d.hint == 12 for s in shapes for d in s)
    assert torch.allclose(outputs(captured, X), X[X > 0].sum() * X.sum())


def test_one_output_of_several_is_kept() -> None:
    graph = capture(lambda x: x.max(1).values + x.split(2, 1)[1].sum(), (X,)).graph
    assert graph.user["max_1"].target == "aten.max.dim[0]"
    assert [n.op for n in graph.members["max_1"]] == ["amax"]
    assert split_target("aten.max.dim[0]") == ("aten.max.dim", (0,))


def test_views_to_the_same_shape_are_no_operators() -> None:
    graph = capture(lambda x: F.dropout(x.view(3, 4).expand(3, 4).contiguous(), 0.1, False) * 2, (X,)).graph
    assert [u.name for u in graph.user_ops] == ["mul"]


def test_unknown_composites_are_taken_apart() -> None:
    graph = capture(lambda x: torch.diff(x, dim=1), (X,)).graph
    assert not [u for u in graph.user_ops if u.why]


def test_text_round_trip_runs() -> None:
    captured = capture(lambda x, y: (F.softmax(x, -1), x.mul_(y).sum()), (X.clone(), X.clone()))
    graph = parse_graph(print_graph(captured.graph))
    again = captured_from_graph(graph)
    x, y = X.clone(), X + 1
    want = (F.softmax(X, -1), (X * y).sum())
    got = again.unflatten(again.fn(x, y))
    assert torch.equal(got[0], want[0]) and torch.allclose(got[1], want[1]) and torch.equal(x, X * y)
    env = dict(zip(graph.input_ids, again.bind((X.clone(), y)), strict=True))
    run(graph, env, {})
    assert torch.allclose(env[graph.outputs[0]], want[0])
    assert again.program is not None


def test_replay_resolves_by_an_allow_list() -> None:
    op = UserOp(
        "to", "aten._to_copy.default", (Ref("x"),), (("dtype", Token("torch.float64")),), ("to",), "pointwise"
    )
    assert call(op, {"x": X})[0].dtype == torch.float64
    assert inputs_of(op) == ("x",)
    for target in (
        "aten.from_file.default",
        "os.system",
        "operator.methodcaller",
        "torch.load",
        "math.exp",
        "aten.add",
    ):
        with pytest.raises(FormatError) as caught:
            resolve(target)
        assert caught.value.code == "E113"
    for token in ("torch.load", "torch.ops", "nonsense device"):
        with pytest.raises(FormatError):
            call(replace(op, kwargs=(("dtype", Token(token)),)), {"x": X})


def test_results_that_nest_lists_are_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.histogramdd(x, [2, 2]).hist + 1

    with pytest.raises(CaptureError, match="returns lists inside a tuple") as caught:
        capture(f, (torch.rand(5, 2),))
    assert caught.value.code == "E208" and "torch.histogramdd(x" in caught.value.where


@pytest.mark.parametrize("order", [2, 1, 0, 3.5, float("inf")])
def test_the_norm_of_a_scalar(order: float) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(x, order, dim=0)

    x = torch.tensor(-3.0)
    captured = capture(f, (x,))
    assert not any(u.why for u in captured.graph.user_ops)
    assert interpret(captured, (x,))[0] == (1.0 if order == 0 else 3.0)
