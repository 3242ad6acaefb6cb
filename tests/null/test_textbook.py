"""The textbook's checker and table, to the letter, and its policies on graphs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fusebound import target
from fusebound.errors import UsageError
from fusebound.ir.spec import verify
from fusebound.ir.text import parse_graph
from fusebound.textbook import FusionBoundaryChecker, Operator, example, table
from fusebound.textbook.policy import groups, pair_allowed


def _checker(*ops: Operator) -> FusionBoundaryChecker:
    c = FusionBoundaryChecker()
    for op in ops:
        c.add_op(op)
    return c


def _op(name: str, reads: str, writes: str, kind: str = "elementwise", **more: object) -> Operator:
    return Operator(name, kind, reads.split(), writes.split(), **more)  # type: ignore[arg-type]


def test_the_table_is_the_textbooks() -> None:
    assert [r.cells for r in table.rows()] == [
        ("Relu + Add", "pass", "pass", "pass (16)", "pass", "fuse", "refused: Add's t2 has two consumers"),
        ("Add + Softmax", "fail: t2 has two consumers", "pass", "pass (40)", "pass", "no",
         "refused: Softmax reduces, t2 has two consumers"),
        ("Softmax + Mul", "pass", "pass", "pass (40)", "pass", "fuse", "refused: Softmax reduces"),
    ]  # fmt: skip
    assert len(table.HEADER) == len(table.rows()[0].cells)


def test_the_output_says_that_the_third_pair_has_no_edge() -> None:
    notes = [r.note for r in table.rows()]
    assert notes[:2] == ["", ""]
    assert notes[2].startswith("Softmax + Mul has no edge")


def test_fuse_prints_one_line_per_pair(capsys: pytest.CaptureFixture[str]) -> None:
    c = example.checker()
    ok, checks = c.fuse(*c.ops[1:3])
    assert (ok, checks) == (False, {"dep": False, "prec": True, "res": True, "branch": True})
    assert capsys.readouterr().out == f"fuse Add + Softmax: False {checks}\n"


def test_operators_count_registers_as_taught() -> None:
    assert _op("a", "x", "y").regs() == 8
    assert _op("a", "x", "y", "reduce").regs() == 32
    c = _checker(_op("a", "x", "y", "reduce"), _op("b", "y", "z", "reduce"))
    assert not c.res_ok("a", "b") and not c.prec_ok("a", "b")
    assert FusionBoundaryChecker(register_limit=64).register_limit == 64


def test_dep_wants_one_consumer() -> None:
    c = _checker(_op("a", "x", "t"), _op("b", "t", "u"), _op("c", "t u", "v"))
    assert c.consumers("t") == 2
    assert not c.dep_ok("a", "b")
    assert c.dep_ok("b", "c")


def test_dep_refuses_an_operator_on_a_path_between() -> None:
    c = _checker(_op("a", "x", "t s"), _op("m", "s", "u"), _op("b", "t u", "v"))
    assert not c.dep_ok("a", "b")
    assert c.dep_ok("a", "b", inside=("m",))
    assert c.dep_ok("a", "m") and c.dep_ok("m", "b")


def test_dep_refuses_a_write_between_of_what_both_read() -> None:
    reads = (_op("a", "x", "t"), _op("w", "q", "x"), _op("b", "x t", "v"))
    assert not _checker(*reads).dep_ok("a", "b")
    elsewhere = (_op("a", "x", "t"), _op("w", "q", "y"), _op("b", "x t", "v"))
    assert _checker(*elsewhere).dep_ok("a", "b")
    outside = (_op("w", "q", "x"), _op("a", "x", "t"), _op("b", "x t", "v"))
    assert _checker(*outside).dep_ok("a", "b")


def test_a_branch_refuses() -> None:
    c = _checker(_op("a", "x", "t", uses_branch=True), _op("b", "t", "u"))
    assert c.check("a", "b") == {"dep": True, "prec": True, "res": True, "branch": False}


def test_no_fuse_gives_every_reason() -> None:
    c = _checker(
        _op("nms", "boxes", "t", "reduce", uses_branch=True, dynamic=True),
        _op("b", "t", "u"),
        _op("c", "t", "v"),
    )
    assert c.no_fuse("nms").reasons == (
        "nms reduces", "nms has a data-dependent size", "nms branches", "nms's t has two consumers",
    )  # fmt: skip
    assert not c.no_fuse("b")


def test_gain_counts_the_write_as_taught_and_the_read_too() -> None:
    c = _checker(_op("a", "x", "t", shape=(10,), dtype="float16"), _op("b", "t", "u"))
    gain = c.gain("a", "b")
    assert gain is not None and gain.ok
    assert (gain.taught, gain.exact, gain.taught_bytes, gain.exact_bytes) == (10, 20, 20, 40)
    kept = _checker(_op("a", "x", "t", shape=(10,)), _op("b", "t", "u"), _op("c", "t", "v")).gain("a", "b")
    assert kept is not None and kept.exact == 10
    assert _checker(_op("a", "x", "t"), _op("b", "t", "u")).gain("a", "b") is None
    apart = _checker(_op("a", "x", "t", shape=(10,)), _op("b", "x", "u")).gain("a", "b")
    assert apart is not None and not apart.ok


def test_shared_memory_and_threads_have_rules_of_their_own() -> None:
    c = _checker(
        _op("a", "x", "t", shared_memory=40_000, threads=512),
        _op("b", "t", "u", shared_memory=9_000, threads=128),
        _op("c", "u", "v", shared_memory=9_153, threads=0),
    )
    assert c.shared_ok("a", "b") and not c.shared_ok("a", "c")
    assert not c.threads_ok("a", "b") and c.threads_ok("a", "c")


def test_bad_operators_are_refused() -> None:
    with pytest.raises(UsageError, match="op_type 'conv'"):
        _op("a", "x", "y", "conv")
    with pytest.raises(UsageError, match="listed already"):
        _checker(_op("a", "x", "y"), _op("a", "x", "y"))
    with pytest.raises(UsageError, match="unknown operator 'z'"):
        _checker(_op("a", "x", "y")).dep_ok("a", "z")


CHAIN = """\
fusebound.graph 1 "chain"
%x = input user "x" : f32[64, 32]
{chain}
norm: aten.softmax.int(%y, 1) -> %norm.1 reduce
  %norm = sum(%y) {{axes = [1]}} : f32[64]
  %norm.1 = reshape(%norm) : f32[64, 1]
return %norm.1
"""


def _chain(length: int) -> str:
    names = [*(f"v{i}" for i in range(length - 1)), "y"]
    lines = []
    for before, v in zip(["x", *names], names, strict=False):
        lines += [
            f"{v}: aten.abs.default(%{before}) -> %{v} pointwise",
            f"  %{v} = abs(%{before}) : f32[64, 32]",
        ]
    return CHAIN.format(chain="\n".join(lines))


def test_groups_of_the_example() -> None:
    g, t = example.graph(), target.get("cpu-avx2")
    verify(g)
    assert groups(g, False, t) == [("relu", "add"), ("softmax",), ("mul",)]
    assert groups(g, True, t) == [("relu",), ("add",), ("softmax",), ("mul",)]


@pytest.mark.parametrize(
    "length, strict, sizes",
    [
        (2, False, [3]),
        (2, True, [2, 1]),
        (5, False, [5, 1]),
        (6, False, [6, 1]),
        (7, False, [6, 2]),
        (7, True, [6, 1, 1]),
    ],
)
def test_groups_grow_until_their_registers_are_used_up(length: int, strict: bool, sizes: list[int]) -> None:
    """Eight registers an elementwise operator, 32 a reduction, 48 a kernel."""
    g = parse_graph(_chain(length))
    verify(g)
    assert sorted(map(len, groups(g, strict, target.get("cpu-avx2"))), reverse=True) == sizes


def test_a_pair_without_an_edge_is_refused_on_real_graphs() -> None:
    ok, checks = pair_allowed(example.graph(), "softmax", "mul", strict=False)
    assert not ok and not checks["edge"]
    assert all(checks[k] for k in ("dep", "prec", "res", "branch"))


GRAPH = """\
fusebound.graph 1 "mixed"
%x = input user "x" : f32[8, 8]
%w = input user "w" : f32[8, 8]
abs: aten.abs.default(%x) -> %abs pointwise
  %abs = abs(%x) : f32[8, 8]
write: aten.add.Tensor(%x, %w) -> %write pointwise written "aten.add_.Tensor"
  %write = add(%x, %w) : f32[8, 8]
both: aten.add.Tensor(%abs, %write) -> %both pointwise
  %both = add(%abs, %write) : f32[8, 8]
t: aten.t.default(%both) -> %t move
  %t = permute(%both) {perm = [1, 0]} : f32[8, 8] strides [1, 8]
mm: aten.mm.default(%t, %w) -> %mm contract why "F607"
  %mm = aten.mm.default(%t, %w) : f32[8, 8]
exp: aten.exp.default(%mm) -> %exp pointwise
  %exp = exp(%mm) : f32[8, 8]
empty: aten.exp.default(%exp) -> %empty pointwise
  %empty = exp(%exp) : f32[8, 8]
return %empty
mutate %x <- %write
"""


def test_moves_contractions_and_overwritten_tensors_do_not_fuse() -> None:
    g = parse_graph(GRAPH)
    verify(g)
    for pair in (("both", "t"), ("t", "mm"), ("mm", "exp")):
        ok, checks = pair_allowed(g, *pair, strict=False)
        assert not ok and not checks["class"], pair
    ok, checks = pair_allowed(g, "abs", "both", strict=False)
    assert not ok and not checks["dep"], "x is overwritten between its two readers"
    assert pair_allowed(g, "abs", "both", strict=False, inside=("write",))[0]
    assert ("exp", "empty") in groups(g, False, target.get("a100"))


def test_a_graph_in_which_nothing_is_written_in_place_has_no_such_refusal() -> None:
    g = parse_graph(GRAPH.replace(' written "aten.add_.Tensor"', "").replace("mutate %x <- %write\n", ""))
    assert pair_allowed(g, "abs", "both", strict=False)[0]


def test_an_empty_tensor_gains_nothing() -> None:
    g = parse_graph(GRAPH.replace("[8, 8]", "[0, 0]").replace(" strides [1, 8]", ""))
    ok, checks = pair_allowed(g, "exp", "empty", strict=False)
    assert not ok and not checks["gain"]
    assert ("exp",) in groups(g, False, target.get("a100"))


def test_the_textbook_needs_no_torch() -> None:
    code = "import sys, fusebound.textbook.policy, fusebound.textbook.table; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
