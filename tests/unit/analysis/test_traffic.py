"""Bytes of kernels, of operators alone, by memory level; views, liveness, roofline."""

from __future__ import annotations

import pytest
from tests.unit.plan.graphs import Sketch, chain, nodes

from fusebound.analysis.alias import is_view, storages
from fusebound.analysis.liveness import peak_bytes
from fusebound.analysis.recompute import ways
from fusebound.analysis.roofline import bandwidth, eager_cost, kernel_cost
from fusebound.analysis.rows import row_scratch
from fusebound.analysis.space import Space, unify
from fusebound.analysis.structure import structure
from fusebound.analysis.traffic import (
    apart_bytes,
    by_level,
    kernel_traffic,
    level,
    own_nodes,
    unfused_bytes,
    user_traffic,
)
from fusebound.ir.builder import Builder
from fusebound.ir.graph import Graph, Mutation, Ref, Value
from fusebound.target import get

MB = 1 << 20


def test_a_chain_of_three_saves_both_intermediates_twice() -> None:
    g = chain(rows=1024, columns=256)
    size = 1024 * 256 * 4
    assert unfused_bytes(g, ("add", "mul", "tanh")) == (3 + 3 + 2) * size
    fused = kernel_traffic(g, nodes(g, "add", "mul", "tanh"))
    assert (fused.read_bytes, fused.write_bytes, fused.inside) == (2 * size, size, 2 * size)


def test_an_escaping_value_is_still_written() -> None:
    s = Sketch()
    x = s.input("x", 1024)
    e = s.op("exp", "exp", x)
    g = s.done(s.op("neg", "neg", e), e)
    assert kernel_traffic(g, nodes(g, "exp", "neg")).writes == {"exp": 4096, "neg": 4096}


def test_views_move_nothing_and_share_storage() -> None:
    s = Sketch()
    x = s.input("x", 8, 16)
    t = s.view("t", "permute", x, (1, 16), perm=(1, 0))
    h = s.view("half", "slice", x, (16, 1), shape=(8, 8), dim=1, start=0, step=1)
    f = s.op("flip", "flip", x, kind="move", dims=(0,))
    c = s.op("cat", "cat", x, x, kind="move", dim=0)
    g = s.done(t, h, f, c)
    assert [is_view(g, u) for u in g.user_ops] == [True, True, False, False]
    assert user_traffic(g, g.user["t"]).total == 0
    assert user_traffic(g, g.user["cat"]).total == (8 * 16 + 16 * 16) * 4, "the operand is read once"
    base = storages(g)
    assert base.shared("t", "half") and not base.shared("t", "flip")


def test_a_group_of_its_own_stores_no_view_that_the_framework_gives() -> None:
    s = Sketch()
    x = s.input("x", 8, 16)
    h = s.view("half", "slice", x, (16, 1), shape=(8, 8), dim=1, start=0, step=1)
    n = s.op("neg", "neg", s.op("exp", "exp", h))
    t = s.view("turned", "permute", n, (1, 8), perm=(1, 0))
    g = s.done(s.op("abs", "abs", h), s.op("tanh", "tanh", t))
    size = 8 * 8 * 4
    assert apart_bytes(g, nodes(g, "half", "exp")) == 2 * size
    group = nodes(g, "half", "exp", "neg", "turned")
    assert own_nodes(g, group) == nodes(g, "exp", "neg") and apart_bytes(g, group) == 2 * size
    group = nodes(g, "exp", "neg", "turned", "tanh")
    assert own_nodes(g, group) == group and apart_bytes(g, group) == 2 * size


def test_a_question_about_sizes_reads_no_data() -> None:
    b = Builder("sized")
    x = b.input("x", (8, 16), "float32")
    b.begin("sym_size")
    (n,) = b.opaque("aten.sym_size.int", (x,), [Value("", (), "int64", (), scalar=True)])
    b.end("aten.sym_size.int", (Ref(x), 0), (), (n,), "opaque", why="F602")
    g = b.finish((n,))
    assert unfused_bytes(g, ("sym_size",)) == 0
    assert eager_cost(g, g.user["sym_size"], get("cpu-avx512")).total == 0


@pytest.mark.parametrize(("strides", "view"), [((16, 1), True), ((1, 8), False)])
def test_a_reshape_is_a_view_where_its_strides_say_so(strides: tuple[int, int], view: bool) -> None:
    s = Sketch()
    s.b.input("x", (8, 16), "float32", strides)
    g = s.done(s.view("flat", "reshape", "x", (1,), shape=(128,)))
    assert is_view(g, g.user["flat"]) is view


def test_strided_reads_are_marked() -> None:
    s = Sketch()
    s.b.input("t", (64, 64), "float32", (1, 64))
    g = s.done(s.op("exp", "exp", "t"))
    assert kernel_traffic(g, nodes(g, "exp")).strided == {"t"}
    target = get("cpu-avx512")
    assert (
        kernel_cost(g, nodes(g, "exp"), target).memory
        > 2 * kernel_cost(chain(rows=64, columns=64), {"tanh"}, target).memory
    )


def test_levels_follow_what_a_call_touches() -> None:
    target = get("cpu-avx512")
    small, large = chain(rows=64, columns=64), chain(rows=8192, columns=2048)
    assert (level(small, "x", target), level(small, "add", target)) == ("l2", "l2")
    assert (level(large, "x", target), level(large, "add", target)) == ("dram", "dram")
    traffic = kernel_traffic(large, nodes(large, "add", "mul", "tanh"))
    levels = by_level(large, traffic, target)
    assert levels["dram"] == traffic.total and levels["register"] == 2 * 8192 * 2048 * 4


def test_peak_memory_of_a_schedule() -> None:
    g = chain(rows=256, columns=256)
    size = 256 * 256 * 4
    apart = [nodes(g, u) for u in ("add", "mul", "tanh")]
    assert peak_bytes(g, apart) == 2 * size
    assert peak_bytes(g, [nodes(g, "add", "mul", "tanh")]) == size


def test_the_model_prefers_one_kernel_to_three_operators() -> None:
    target = get("cpu-avx512")
    g = chain()
    eager = sum(eager_cost(g, u, target).total for u in g.user_ops)
    assert kernel_cost(g, nodes(g, "add", "mul", "tanh"), target).total < eager / 3
    assert eager_cost(g, g.user["add"], target).fault > 0, "32 MB of fresh memory"


def test_sharing_and_recomputing_are_priced() -> None:
    s = Sketch()
    x = s.input("x", 4096, 1024)
    e = s.op("exp", "exp", x)
    g = s.done(s.op("neg", "neg", e), s.opaque("sort", e))
    w = ways(g, e, nodes(g, "exp", "neg"), get("cpu-avx512"))
    size = 4096 * 1024 * 4
    t = get("cpu-avx512")
    rate = bandwidth(level(g, e, t), t)
    assert w.share_us == 2 * size / rate
    assert w.recompute_us >= size / rate
    assert w.materialise_us > w.share_us


def test_only_a_row_walked_twice_needs_scratch() -> None:
    s = Sketch()
    x = s.input("x", 64, 4096)
    g = s.done(s.softmax(x), s.op("total", "sum", x, kind="reduce", axes=(1,)))

    def scratch(user: str) -> int:
        space = unify(g, nodes(g, user))
        assert isinstance(space, Space)
        return row_scratch(g, nodes(g, user), space)

    assert scratch("softmax") == 4096 * 4
    assert scratch("total") == 0


def test_equal_groups_have_equal_structure() -> None:
    def twice(second: str) -> Graph:
        s = Sketch()
        x = s.input("x", 64)
        return s.done(s.op("a", "exp", x), s.op("b", second, x))

    same, other = twice("exp"), twice("neg")
    assert structure(same, {"a"}) == structure(same, {"b"})
    assert structure(other, {"a"}) != structure(other, {"b"})


def test_inputs_that_are_written_are_known() -> None:
    s = Sketch()
    x = s.input("x", 64)
    g = s.done(mutations=(Mutation(x, s.op("relu", "abs", x)),))
    assert storages(g).written == {"x"}
