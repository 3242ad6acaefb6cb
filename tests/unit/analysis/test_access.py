"""Regions: which elements of an operand a part of a result needs."""

from __future__ import annotations

from tests.unit.plan.graphs import Sketch, nodes

from fusebound.analysis.access import Region, demand, elements, factor, needed, whole
from fusebound.ir.builder import Builder
from fusebound.ir.graph import Attr, Graph, Value


def region_of(primitive: str, shapes: list[tuple[int, ...]], out: Region, operand: int = 0, **attrs: Attr):
    b = Builder()
    ids = [
        b.input(f"x{k}", s, "int64" if k and "gather" in primitive else "float32")
        for k, s in enumerate(shapes)
    ]
    b.begin("op")
    made = b.emit(primitive, *ids, **attrs)  # type: ignore[arg-type]
    b.end("op", (), (), (made,), "move")
    g = b.finish((made,))
    return needed(g, g.nodes[0], operand, out)


def test_pointwise_broadcasts_to_the_right() -> None:
    out = ((2, 3, 1), (0, 8, 1))
    assert region_of("add", [(5, 8), (8,)], out) == out
    assert region_of("add", [(5, 8), (8,)], out, operand=1) == ((0, 8, 1),)
    assert region_of("add", [(5, 8), (5, 1)], out, operand=1) == ((2, 3, 1), (0, 1, 1))


def test_reductions_need_whole_axes() -> None:
    assert region_of("sum", [(5, 8)], ((1, 2, 1),), axes=(1,)) == ((1, 2, 1), (0, 8, 1))


def test_moves_shift_and_permute() -> None:
    assert region_of("permute", [(5, 8)], ((1, 2, 1), (3, 1, 1)), perm=(1, 0)) == ((3, 1, 1), (1, 2, 1))
    assert region_of("slice", [(9,)], ((1, 3, 1),), shape=(4,), dim=0, start=2, step=2) == ((4, 3, 2),)
    assert region_of("flip", [(9,)], ((0, 2, 1),), dims=(0,)) == ((7, 2, 1),)
    assert region_of("expand", [(1, 8)], ((0, 5, 1), (1, 2, 1)), shape=(5, 8)) == ((0, 1, 1), (1, 2, 1))


def test_piecewise_moves_clip() -> None:
    shapes = [(3,), (4,)]
    assert region_of("cat", shapes, ((1, 4, 1),), dim=0) == ((1, 2, 1),)
    assert region_of("cat", shapes, ((1, 4, 1),), operand=1, dim=0) == ((0, 2, 1),)
    assert region_of("cat", shapes, ((0, 2, 1),), operand=1, dim=0) is None
    assert region_of("pad", [(3,)], ((0, 4, 1),), shape=(6,), lo=(2,), value=0.0) == ((0, 2, 1),)
    assert region_of("pad", [(3,)], ((0, 2, 1),), shape=(6,), lo=(2,), value=0.0) is None


def test_slice_scatter_takes_each_side_where_it_shows() -> None:
    attrs: dict[str, Attr] = {"dim": 0, "start": 2, "step": 1}
    assert region_of("slice_scatter", [(6,), (3,)], ((0, 6, 1),), **attrs) == ((0, 6, 1),)
    assert region_of("slice_scatter", [(6,), (3,)], ((0, 4, 1),), operand=1, **attrs) == ((0, 2, 1),)
    full: dict[str, Attr] = {"dim": 0, "start": 0, "step": 1}
    assert region_of("slice_scatter", [(6,), (6,)], ((0, 6, 1),), **full) is None


def test_reshape_keeps_runs_of_a_split_axis() -> None:
    rows = ((1, 2, 1), (0, 4, 1), (0, 5, 1))
    assert region_of("reshape", [(12, 5)], rows, shape=(3, 4, 5)) == ((4, 8, 1), (0, 5, 1))
    part = ((0, 3, 1), (1, 2, 1), (0, 5, 1))
    assert region_of("reshape", [(12, 5)], part, shape=(3, 4, 5)) == ((0, 12, 1), (0, 5, 1)), "rounded up"


def test_factor_pairs_equal_products() -> None:
    assert factor([12, 5], [3, 4, 5]) == [([0], [0, 1]), ([1], [2])]
    assert factor([2, 3, 4], [6, 4]) == [([0, 1], [0]), ([2], [1])]
    assert factor([], [1]) == [([], [0])]


def test_distinct_elements() -> None:
    v = Value("v", (8,), "float32", (1,))
    assert elements(v, [((0, 4, 1),), ((4, 4, 1),)]) == 8
    assert elements(v, [((0, 4, 2),), ((1, 4, 2),)]) == 8, "even and odd elements never meet"
    assert elements(v, [((0, 6, 1),), ((3, 5, 1),)]) <= 8
    assert elements(v, []) == 0
    assert elements(Value("e", (64, 8), "float32", (0, 1)), [((0, 64, 1), (0, 8, 1))]) == 8


def test_a_kernel_reads_only_the_half_that_it_uses() -> None:
    s = Sketch()
    x = s.input("x", 4, 64)
    half = s.view("slice", "slice", x, (64, 1), shape=(4, 32), dim=1, start=32, step=1)
    g: Graph = s.done(s.op("exp", "exp", half))
    assert demand(g, nodes(g, "slice", "exp")) == {"x": [((0, 4, 1), (32, 32, 1))]}
    assert whole(g.values["x"]) == ((0, 4, 1), (0, 64, 1))
