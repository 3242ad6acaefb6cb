"""Where values lie in a common space, and the true obstacle where there is none."""

from __future__ import annotations

from functools import partial

import pytest
from tests.unit.codegen.graphs import graph, placed, refused

from fusebound.ir.builder import Builder


def test_pointwise_values_lie_at_one_point() -> None:
    def make(b: Builder) -> str:
        b.input("x", (3, 5), "float32")
        b.begin("f")
        return b.emit("neg", b.emit("exp", "x"))

    s = placed(graph(make))
    assert (s.dims, s.reduced, s.stages, s.row, s.outer) == ((3, 5), frozenset(), 1, 1, 15)


def test_reductions_of_one_row_share_its_variable() -> None:
    def make(b: Builder) -> str:
        b.input("x", (3, 5), "float32")
        b.begin("softmax")
        m = b.emit("reshape", b.emit("amax", "x", axes=(1,)), shape=(3, 1))
        e = b.emit("exp", b.emit("sub", "x", m))
        s = b.emit("reshape", b.emit("sum", e, axes=(1,)), shape=(3, 1))
        return b.emit("div", e, s)

    s = placed(graph(make))
    assert (s.row, s.outer, s.stages, len(s.reductions)) == (5, 3, 3, 2)
    assert s.scratch_bytes == 20


def test_a_split_axis_becomes_two_variables() -> None:
    def make(b: Builder) -> str:
        b.input("x", (4, 6), "float32")
        b.input("w", (4, 2, 3), "float32")
        b.begin("f")
        return b.emit("mul", b.emit("reshape", b.emit("neg", "x"), shape=(4, 2, 3)), "w")

    assert sorted(placed(graph(make)).dims) == [2, 3, 4]


def test_pieces_become_cuts() -> None:
    def make(b: Builder) -> str:
        b.input("x", (5, 3), "float32")
        b.input("y", (5, 4), "float32")
        b.begin("f")
        return b.emit("cat", b.emit("neg", "x"), b.emit("abs", "y"), dim=1)

    assert placed(graph(make)).cuts == {1: (3,)}


def test_rows_of_different_lengths() -> None:
    def make(b: Builder) -> str:
        b.input("x", (4, 8), "float32")
        b.input("y", (4, 16), "float32")
        b.begin("f")
        return b.emit("add", b.emit("sum", "x", axes=(1,)), b.emit("sum", "y", axes=(1,)))

    found = refused(graph(make))
    assert found.code == "F503" and "reduces other axes" in found.message


def test_a_row_and_a_sum_over_rows() -> None:
    def make(b: Builder) -> str:
        b.input("x", (4, 8), "float32")
        b.begin("f")
        return b.emit("sum", b.emit("sum", "x", axes=(1,)), axes=(0,))

    assert refused(graph(make)).code == "F503"


def test_a_total_that_every_point_would_compute_anew() -> None:
    def make(b: Builder) -> str:
        b.input("x", (4, 8), "float32")
        b.input("y", (5, 7), "float32")
        b.begin("f")
        return b.emit("add", "y", b.emit("sum", "x", axes=(0, 1)))

    found = refused(graph(make))
    assert found.code == "F501" and found.message.endswith("repetition of its broadcast: 35 times")
    assert found.flip.startswith("none: ")


def test_a_stored_value_that_every_repetition_would_compute_anew() -> None:
    def make(b: Builder, stored: bool) -> tuple[str, ...]:
        b.input("x", (4, 1), "float32")
        b.input("y", (4, 8), "float32")
        b.begin("f")
        e = b.emit("exp", "x")
        m = b.emit("mul", "y", e)
        return (m, e) if stored else (m,)

    found = refused(graph(partial(make, stored=True)))
    assert found.code == "F501" and found.message.endswith("repetition of its broadcast: 8 times")
    assert found.flip.startswith("leave no reader of ")
    assert placed(graph(partial(make, stored=False))).dims == (4, 8)


def test_results_that_nobody_reads() -> None:
    def make(b: Builder) -> str:
        b.input("x", (4,), "float32")
        b.begin("f")
        b.emit("neg", "x")
        return "x"

    assert refused(graph(make)).code == "F501"


def test_a_reshape_that_does_not_factor() -> None:
    def make(b: Builder) -> str:
        b.input("x", (4, 6), "float32")
        b.input("y", (8, 3), "float32")
        b.begin("f")
        p = b.emit("permute", b.emit("neg", "x"), perm=(1, 0))
        return b.emit("add", b.emit("reshape", p, shape=(8, 3)), "y")

    assert refused(graph(make)).code == "F502"


def test_a_gather_from_the_kernels_own_value() -> None:
    def make(b: Builder) -> str:
        b.input("x", (4, 6), "float32")
        b.input("i", (3,), "int64")
        b.begin("f")
        return b.emit("index_select", b.emit("neg", "x"), "i", dim=0)

    assert refused(graph(make)).code == "F609"


@pytest.mark.parametrize("op", ["index_select", "floor_div"])
def test_a_part_of_what_may_raise(op: str) -> None:
    """Eager raises for an index or a divisor that the slice drops."""

    def make(b: Builder, kept: int = 3) -> str:
        b.input("x", (6,), "int64")
        b.input("i", (6,), "int64")
        b.begin("f")
        v = b.emit(op, "x", "i", dim=0) if op == "index_select" else b.emit(op, "x", "i")
        return b.emit("slice", b.emit("neg", v), shape=(kept,), dim=0, start=0, step=1)

    refusal = refused(graph(make))
    assert refusal.code == "F501" and "may raise" in refusal.message
    assert placed(graph(partial(make, kept=6))).dims == (6,)


def test_a_part_of_a_division_by_a_constant() -> None:
    def make(b: Builder) -> str:
        b.input("x", (6,), "int64")
        b.begin("f")
        v = b.emit("floor_div", "x", b.const(2, "int64"))
        return b.emit("slice", v, shape=(3,), dim=0, start=0, step=1)

    assert placed(graph(make)).dims == (3,)


def test_a_tensor_without_elements() -> None:
    def make(b: Builder) -> str:
        b.input("x", (0, 6), "float32")
        b.begin("f")
        return b.emit("neg", "x")

    assert refused(graph(make)).code == "F507"


def test_a_strided_assignment() -> None:
    def make(b: Builder) -> str:
        b.input("x", (9,), "float32")
        b.input("y", (4,), "float32")
        b.begin("f")
        return b.emit("slice_scatter", "x", b.emit("neg", "y"), dim=0, start=1, step=2)

    assert refused(graph(make)).code == "F505"


def test_pieces_into_one_number() -> None:
    def make(b: Builder) -> str:
        b.input("x", (1 << 17,), "float32")
        b.begin("f")
        return b.emit("sum", b.emit("cat", "x", "x", dim=0), axes=(0,))

    found = refused(graph(make))
    assert found.code == "F504" and "262,144 elements in pieces" in found.message
