"""Every case of the benchmark suite computes the same by all the ways that it is timed; nothing is timed here."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import fusebound as fb
from bench.suite import contenders, measure
from bench.suite.case import Case
from bench.suite.cases import CASES
from bench.suite.contenders import disagrees
from bench.suite.into import Replay
from bench.suite.limit import copies, least_traffic
from bench.suite.measure import Row, Time
from bench.suite.tables import summary
from fusebound.measure.statistics import Ratio, Samples

TINY = 1 << 13
"""Bytes of a case's largest tensor, where its rows are not longer."""


def _arguments(case: Case, dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    """A case's arguments, with nothing dropped at random."""
    args = case.arguments(TINY, dtype)
    return (*args[:-1], 0.0) if case.last == "probability" else args


def _assert_equal(case: Case, make: Callable[[tuple[Any, ...]], Callable[[], Any]]) -> None:
    """What `make` makes of arguments returns and writes what the case does."""
    own = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in _arguments(case))
    given = _arguments(case)
    with torch.no_grad():
        expected = pytree.tree_leaves(case.fn(*given))
        got = pytree.tree_leaves(make(own)())
    changed = [(own[i], given[i]) for i in case.written]
    before = _arguments(case)
    assert all(not torch.equal(given[i], before[i]) for i in case.written)
    for g, e in [*zip(got, expected, strict=True), *changed]:
        assert (g is None and e is None) or disagrees(g, e) == ""


@pytest.mark.parametrize("name", CASES)
def test_fused_computes_what_eager_does(name: str) -> None:
    def make(args: tuple[Any, ...]) -> Callable[[], Any]:
        exe = fb.build(fb.plan(fb.capture(CASES[name].fn, *args)))
        return lambda: exe(*args)

    _assert_equal(CASES[name], make)


@pytest.mark.parametrize("name", CASES)
def test_a_replay_computes_what_eager_does(name: str) -> None:
    _assert_equal(CASES[name], lambda args: Replay(CASES[name].fn, args))


def test_every_case_is_there_for_jax_too() -> None:
    """By its names alone: jax is not among what the tests need."""
    tree = ast.parse((Path(contenders.__file__).parent / "in_jax.py").read_text(encoding="utf-8"))
    forms = {f.name: [a.arg for a in f.args.args] for f in tree.body if isinstance(f, ast.FunctionDef)}
    for name, case in CASES.items():
        code = case.fn.__code__
        given = list(code.co_varnames[: code.co_argcount])
        assert forms[name] == [*given, "seed"] if case.last == "probability" else given


def test_numbers_that_differ_are_told() -> None:
    x = torch.linspace(-1, 1, 64)
    assert disagrees(x + 1e-5, x) == ""
    assert disagrees(torch.where(x == x[3], x + 0.1, x), x).startswith("1 of 64 numbers differ, by 0.1")
    assert disagrees(torch.full_like(x, torch.nan), x).startswith("64 of 64")
    assert disagrees(x.double(), x) == "torch.float64 (64,) instead of torch.float32 (64,)"
    q = torch.arange(8, dtype=torch.int8)
    assert disagrees(q + 1, q) == ""
    assert disagrees(q + 2, q).startswith("8 of 8")
    assert disagrees(q.long() + 1, q.long()).startswith("8 of 8")


def test_a_contender_may_be_nearer_the_truth_than_eager() -> None:
    def absorbed(x: torch.Tensor) -> torch.Tensor:
        return (x + 1024) - 1024

    case = Case(absorbed, lambda nbytes, dtype: (torch.linspace(0, 1, 64).to(dtype),))
    args = case.arguments(TINY, torch.bfloat16)
    exact = contenders.Contender(lambda: args[0], list)
    contenders.compare("exact", exact, case, args)
    with pytest.raises(contenders.Disagreement, match="wrong, result 0: 64 of 64"):
        contenders.compare("wrong", contenders.Contender(lambda: args[0] + 1, list), case, args)
    with pytest.raises(contenders.Disagreement, match="two returns 2 results, eager 1"):
        contenders.compare("two", contenders.Contender(lambda: (args[0], args[0]), list), case, args)


def test_a_replay_reuses_its_memory_and_tells_what_does_not() -> None:
    x = torch.randn(4, 8)
    replay = Replay(lambda x: (x.exp() + 1).t().to(torch.bfloat16), [x])
    assert replay().data_ptr() == replay().data_ptr()
    assert replay.allocating == ()
    x.fill_(0.0)
    assert torch.equal(replay(), torch.full((8, 4), 2.0, dtype=torch.bfloat16))
    norm = Replay(lambda x: torch.nn.functional.layer_norm(x, (8,)) + 1, [x])
    assert norm.allocating == ("aten.native_layer_norm.default",)
    x[:, 0] = 1.0
    assert torch.allclose(norm().sum(-1), torch.full((4,), 8.0))


def test_the_least_traffic_counts_what_must_move(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(64, 1024)
    assert least_traffic(CASES["softmax_last"], (x,), x) == 2 * x.nbytes
    assert least_traffic(CASES["adamw"], (x, x, x, x, 0.1), None) == 7 * x.nbytes
    q = x.to(torch.int8)
    assert least_traffic(CASES["quantize_fp8"], (x,), q) == x.nbytes + q.nbytes
    monkeypatch.setattr("bench.suite.limit.this_machine", lambda: type("M", (), {"l3_bytes": 1000})())
    assert least_traffic(CASES["quantize_fp8"], (x,), q) == 2 * x.nbytes + q.nbytes


def test_the_limit_is_the_faster_copy_scaled_to_the_traffic() -> None:
    beside = copies(1 << 20)
    for call in beside.calls.values():
        call()
    times = {"copy": Samples("copy", (4.0, 8.0)), "stream": Samples("stream", (2.0, 2.0))}
    moved = 8 << 20
    assert beside.limit(times).times_us == pytest.approx([2.0 * (1 << 20) / moved] * 2)


def test_rows_have_the_contenders_that_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(case: Case, args: tuple[Any, ...]) -> contenders.Contender:
        return contenders.eager(case, tuple(a + 1 for a in args))

    monkeypatch.setitem(measure.SIZES, "l2", TINY)
    monkeypatch.setattr(measure, "SAMPLE_US", 0.0)
    monkeypatch.setattr(measure, "PAUSE_S", 0.0)
    monkeypatch.setitem(contenders.MAKERS, "inductor", wrong)
    names = ("fused", "eager", "into", "inductor")
    reused, held = measure.measure(CASES["swiglu"], "l2", "bfloat16", names, 5)
    assert (reused.memory, held.memory) == ("reused", "held")
    assert list(reused.times) == ["fused", "eager", "into"]
    assert list(held.times) == ["fused", "eager"]
    assert reused.traffic == 3 * TINY
    assert reused.limit is not None and held.limit is None
    assert reused.absent["inductor"].startswith("Disagreement: inductor, result 0: ")
    (alone,) = measure.measure(CASES["sgd_momentum"], "l2", "float32", ("eager", "into"), 5)
    assert alone.against_best(("eager", "into")) is None
    assert not alone.ratios and not alone.behind


def _row(times: dict[str, float], *, of_limit: float | None, size: str = "dram", note: str = "") -> Row:
    ratios = {n: Ratio(t / times["fused"], 0.0, 9.0, 5) for n, t in times.items() if n != "fused"}
    behind = tuple(n for n, r in ratios.items() if r.value < 1)
    shown = {n: Time(t, 0.0) for n, t in times.items()}
    notes = {"fused": note} if note else {}
    return Row(
        "c", size, "float32", "reused", 8, shown, ratios, behind, None, of_limit, notes, {}, ()
    )  # fmt: skip


def test_the_summary_is_against_the_best_of_the_others() -> None:
    rows = [
        _row({"fused": 2.0, "eager": 16.0, "into": 4.0, "inductor": 8.0}, of_limit=0.8),
        _row({"fused": 2.0, "eager": 2.0, "into": 1.0}, of_limit=0.2, note="measured"),
        _row({"fused": 4.0, "eager": 8.0, "xla": 4.0}, of_limit=0.1, size="l2"),
    ]
    found = summary(rows)
    assert found["rows"] == 3
    assert found["speed-up over the best, reused, geomean"] == pytest.approx(4 ** (1 / 3))
    assert found["rows behind the best"] == 1
    assert found["rows run eagerly"] == 1
    assert found["share of the limit, dram, geomean"] == pytest.approx(0.4)
    assert found["share of the limit, dram, least"] == 0.2
