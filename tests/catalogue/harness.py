"""Two routes to a fused result, both compared with eager: everything in one kernel, and `engine.compile`.

The rule is that of docs/gates.md (Precision), against the fp64 oracle; types, shapes, strides, NaN and infinities, and
what happens to the inputs have to be eager's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only

from fusebound.analysis.space import Refusal, unify
from fusebound.capture.torch import Captured, capture
from fusebound.codegen.build import Kernel, compile_group
from fusebound.engine.compile import CompiledFunction, Options, compile
from fusebound.runtime.launch import launcher
from fusebound.target import get
from fusebound.verify.call import bind
from fusebound.verify.oracle import reference

Function = Callable[..., Any]
PLANNED_FOR = "cpu-avx512"
"""A table in which launches are dear, so that small shapes are fused too, on every machine."""
FOREVER = 10**9
"""Calls over which compiling is spread: here it always pays, whatever the size."""


@dataclass(frozen=True)
class Outcome:
    """Flat results of a call, then the arguments as the call left them."""

    results: list[Any]
    inputs: list[Any]

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [t for t in (*self.results, *self.inputs) if isinstance(t, torch.Tensor)]


def check(fn: Function, *args: Any, refused: str = "", kernels: int = 1, **options: Any) -> CompiledFunction:
    """Compare both routes with eager.

    `refused` is the code with which one kernel of everything is refused; `kernels` is the number of kernels of
    the compiled function. Returns the compiled function.
    """
    captured = capture(fn, own(args))
    space = unify(captured.graph, [n.id for n in captured.graph.nodes])
    if isinstance(space, Refusal):
        assert space.code == refused, space
    else:
        assert not refused, "one kernel of everything is possible"
        compare(captured, args, one_kernel(captured, args))
    compiled = compile(fn, Options(contest=False, expected_calls=FOREVER, hardware=PLANNED_FOR, **options))
    compare(captured, args, call(compiled, args))
    found = len(compiled.executable.kernels) if compiled.executable else 0
    assert found == kernels, (found, compiled.reason)
    compare(captured, args, call(compiled, args))
    return compiled


def own(args: Sequence[Any]) -> tuple[Any, ...]:
    """Copies of the arguments with their strides, offsets and shared memory."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(t: torch.Tensor) -> torch.Tensor:
        key = t.untyped_storage()._cdata
        memory = storages.setdefault(key, t.untyped_storage().clone())
        return torch.empty(0, dtype=t.dtype).set_(memory, t.storage_offset(), t.shape, t.stride())

    return tree_map_only(torch.Tensor, copy, tuple(args))


def call(fn: Function, args: Sequence[Any]) -> Outcome:
    """The function on copies of the arguments."""
    mine = own(args)
    with torch.no_grad():
        results = tree_flatten(fn(*mine))[0]
    return Outcome(results, tree_flatten(mine)[0])


def one_kernel(
    captured: Captured, args: Sequence[Any], *, numerics: str = "accurate", threads: int = 1
) -> Outcome:
    """Every primitive of the graph in one kernel, over poisoned memory."""
    graph = captured.graph
    kernel = compile_group(graph, [n.id for n in graph.nodes], get("host"), name="all", numerics=numerics)
    mine = own(args)
    env = dict(zip(graph.input_ids, captured.bind(mine, {}), strict=True))
    env |= launch(kernel, captured, env, threads=threads)
    for m in graph.mutations:
        env[m.target].copy_(env[m.source])
    results = captured.unflatten([env[v] for v in graph.outputs])
    return Outcome(tree_flatten(results)[0], tree_flatten(mine)[0])


def launch(
    kernel: Kernel, captured: Captured, env: dict[str, torch.Tensor], *, threads: int = 1
) -> dict[str, torch.Tensor]:
    """Run a kernel on tensors by value id; its outputs were poisoned before."""
    values = captured.graph.values
    outputs = {
        v: poisoned(values[v].shape, values[v].strides, getattr(torch, values[v].dtype))
        for v in kernel.outputs
    }
    for v, target in kernel.partial.items():
        outputs[v].copy_(env[target])
    launcher(kernel, FOREVER, threads)(*(env[v] for v in kernel.inputs), *outputs.values())
    return outputs


def poisoned(shape: Sequence[Any], strides: Sequence[Any], dtype: torch.dtype) -> torch.Tensor:
    """A tensor whose elements no operator would yield."""
    t = torch.empty_strided(tuple(shape), tuple(strides), dtype=dtype)
    return t.fill_(float("nan") if dtype.is_floating_point else True if dtype == torch.bool else 77)


def compare(captured: Captured, args: Sequence[Any], got: Outcome) -> None:
    """Assert that `got` is as eager's, in kind, and no worse in value."""
    eager = call(captured.fn, args)
    exact = exact_outcome(captured, args)
    assert len(got.results) == len(eager.results)
    for mine, theirs in zip(got.results, eager.results, strict=True):
        assert type(mine) is type(theirs)
        if not isinstance(theirs, torch.Tensor):
            assert mine == theirs or mine != mine
    for mine, theirs, wide in zip(got.tensors, eager.tensors, exact.tensors, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        assert strides(mine) == strides(theirs), f"strides {mine.stride()}, eager {theirs.stride()}"
        no_worse(mine, theirs, wide)


def no_worse(mine: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> None:
    """Assert the rule on one tensor: integers as eager's (or the oracle's), floats within the bounds."""
    if not eager.is_floating_point():
        wrong = (mine != eager) & (mine != exact)
        assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} differ, first at {_first(wrong)}"
        return
    rounded = exact.to(eager.dtype)
    kinds = [_kind(t) for t in (mine, eager, rounded)]
    wrong = (kinds[0] != kinds[1]) & (kinds[0] != kinds[2])
    # Where only eager overflows, an overflow of the fused result is no worse.
    wrong &= ~((kinds[2] == 0) & (kinds[1] != 0))
    assert not wrong.any(), f"{mine[wrong][0]} where eager has {eager[wrong][0]}, first at {_first(wrong)}"
    finite = (kinds[0] == 0) & (kinds[1] == 0) & (kinds[2] == 0)
    m, e, x = (t[finite].to(torch.float64) for t in (mine, eager, exact))
    if m.numel() == 0:
        return
    if eager.dtype == torch.float64:
        # The oracle is no wider than eager, unless narrower values come before.
        limit = max(2.0**-40 * max(float(e.abs().max()), 1.0), 2 * float((e - x).abs().max()))
        assert float((m - x).abs().max()) <= limit
        return
    ours, theirs, step = (m - x).abs(), (e - x).abs(), ulp(x, eager.dtype)
    size = rms(x)
    limit = max(1.25 * rms(theirs), 2 * float(ulp(torch.tensor(size, dtype=torch.float64), eager.dtype)))
    assert rms(ours) <= limit, f"rms error {rms(ours):.3g}, eager {rms(theirs):.3g}, limit {limit:.3g}"
    excess = ours - torch.maximum(2 * theirs.max(), 4 * step)
    assert float(excess.max()) <= 0, f"max error {float(ours.max()):.3g}, eager {float(theirs.max()):.3g}"


def strides(t: torch.Tensor) -> tuple[int, ...]:
    """Strides of the axes that are walked."""
    return tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1)


def rms(t: torch.Tensor) -> float:
    """Root of the mean square, scaled so that it does not overflow."""
    top = float(t.abs().max())
    return top * float((t / top).square().mean().sqrt()) if top > 0 else 0.0


def ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The unit in the last place of a type at float64 values."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(values.abs().clamp(info.smallest_normal, info.max))
    return torch.ldexp(torch.full_like(values, info.eps), exponent - 1)


def _kind(t: torch.Tensor) -> torch.Tensor:
    """0 finite, 1 and 2 infinite, 3 NaN."""
    return (t == float("inf")) + 2 * (t == -float("inf")) + 3 * t.isnan()


def _first(wrong: torch.Tensor) -> list[int]:
    return wrong.nonzero()[0].tolist()


def exact_outcome(captured: Captured, args: Sequence[Any]) -> Outcome:
    """The user's program in float64, on copies of the arguments."""
    found = reference(captured, bind(captured, own(args)))
    users = [i for i, leaf in enumerate(bind(captured, args)) if leaf.kind == "user"]
    return Outcome(list(found.outputs), [found.inputs[i] for i in users])


def rand(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Random values of a type: normal floats, small integers, bools."""
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=g) < 0.5
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -9
        return torch.randint(low, 10, shape, generator=g).to(dtype)
    return torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)


SPECIAL = (float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-40, -1e-45, 3e38, -3e38)


def special(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Random floats, a tenth of them NaN, infinite, zero of either sign, subnormal or huge."""
    t = rand(*shape, dtype=dtype, seed=seed)
    g = torch.Generator().manual_seed(seed + 1)
    picks = torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)[
        torch.randint(0, len(SPECIAL), shape, generator=g)
    ]
    return torch.where(torch.rand(shape, generator=g) < 0.1, picks, t)
