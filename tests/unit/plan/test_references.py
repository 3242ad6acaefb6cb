"""Values that an operator names among its arguments without reading them: the target of a copy, `ones_like(x)`."""

from __future__ import annotations

import torch

from fusebound.engine.compile import Options, compile
from fusebound.ir.text import parse_graph
from fusebound.plan.candidates import referents, roles, views_between
from fusebound.plan.greedy import plan
from fusebound.target import get

WRITTEN_SLICE = """fusebound.graph 1 "f"
%x = input user "x" : f32[9, 33]
exp: aten.exp.default(%x) -> %exp pointwise
  %exp = exp(%x) : f32[9, 33]
slice_1: aten.slice.Tensor(%x, 1, 2, 5) -> %slice_1 move
  %slice_1 = slice(%x) {dim = 1, start = 2, step = 1} : f32[9, 3] strides [33, 1]
mul: aten.mul.Tensor(%slice_1, 2) -> %mul pointwise
  %mul.1 = const() {value = 2.0} : f32[]
  %mul = mul(%slice_1, %mul.1) : f32[9, 3]
slice_2: aten.slice.Tensor(%exp, 1, 2, 5) -> %slice_2 move
  %slice_2 = slice(%exp) {dim = 1, start = 2, step = 1} : f32[9, 3] strides [33, 1]
copy: aten.copy.default(%slice_2, %mul) -> %copy pointwise written "aten.copy_.default"
  %copy = cast(%mul) {user = False} : f32[9, 3] strides [33, 1]
slice_scatter: aten.slice_scatter.default(%exp, %copy, 1, 2, 5) -> %slice_scatter move
  %slice_scatter = slice_scatter(%exp, %copy) {dim = 1, start = 2, step = 1} : f32[9, 33]
return %slice_scatter
"""


def test_a_view_that_only_lends_its_shape_joins_its_reader() -> None:
    g = parse_graph(WRITTEN_SLICE)
    assert referents(g, "slice_2") == {"copy"} and not g.consumers["slice_2"]
    some, rest = frozenset({"exp"}), frozenset({"slice_1", "mul.1", "mul", "copy", "slice_scatter"})
    assert views_between(g, roles(g), some, rest) == {"slice_2"}
    assert "slice_2" not in views_between(g, roles(g), some, frozenset({"slice_scatter"}))
    p = plan(g, target=get("cpu-avx512"), expected_calls=10**9)
    assert [len(x.users) for x in p.groups] == [6]
    assert p.groups[0].outputs == ("slice_scatter",), "exp is written nowhere"


def test_a_value_inside_a_kernel_can_still_lend_its_shape() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.exp() * 3
        return torch.ones_like(y).cumsum(0) + y.sin()

    x = torch.randn(64, 33)
    compiled = compile(f, Options(contest=False, expected_calls=10**9, hardware="cpu-avx512"))
    torch.testing.assert_close(compiled(x), f(x), rtol=1e-4, atol=1e-4)
    p = compiled.plan
    assert p is not None and p.kernels
    assert all(not set(x.outputs) & {"exp", "mul"} for x in p.kernels)
