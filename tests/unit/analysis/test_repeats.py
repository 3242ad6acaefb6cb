"""Values that are evaluated again in every row."""

from __future__ import annotations

from tests.unit.plan.graphs import Sketch, nodes

from fusebound.analysis.repeats import repeats
from fusebound.analysis.roofline import kernel_cost, repeated_instructions
from fusebound.gates.base import Candidate, Facts
from fusebound.gates.decide import judge
from fusebound.ir.graph import Graph
from fusebound.plan.greedy import plan
from fusebound.target import get

CPU = get("cpu-avx512")


def scaled(primitive: str, rows: int, shape: tuple[int, ...] = (2048,)) -> Graph:
    """x · f(f(w)), with w broadcast over the rows of x."""
    s = Sketch()
    x, w = s.input("x", rows, 2048), s.input("w", *shape)
    inner = s.op("inner", primitive, *([w] * (2 if primitive == "pow" else 1)))
    outer = s.op("outer", primitive, *([inner] * (2 if primitive == "pow" else 1)))
    return s.done(s.op("scale", "mul", x, outer))


def test_a_vector_along_the_rows_repeats_and_a_value_per_row_does_not() -> None:
    g = scaled("exp", 512)
    assert repeats(g, g.node.keys()) == {"outer": 512.0, "inner": 512.0}
    column = scaled("exp", 512, (512, 1))
    assert set(repeats(column, column.node.keys()).values()) == {1.0}
    assert repeated_instructions(g, nodes(g, "inner", "outer"), CPU) == 0


def test_a_reduction_is_never_repeated() -> None:
    s = Sketch()
    x = s.input("x", 512, 2048)
    total = s.op("total", "sum", x, kind="reduce", axes=(0,))
    g = s.done(s.op("sub", "sub", x, s.op("exp", "exp", total)))
    assert repeats(g, g.node.keys())["total"] == 1.0
    assert repeats(g, g.node.keys())["exp"] == 512.0


def test_dear_vectors_stay_apart_and_cheap_ones_do_not() -> None:
    dear, cheap = scaled("pow", 512), scaled("neg", 512)
    j = judge(Candidate(dear, nodes(dear, "inner", "outer"), nodes(dear, "scale")), Facts(CPU))
    assert [v.code for v in j.verdicts if not v] == ["F404"]
    assert next(e for e in j.gain.evidence if e.quantity == "T_recompute").margin is None
    for g, want in ((dear, [("inner", "outer"), ("scale",)]), (cheap, [("inner", "outer", "scale")])):
        assert [x.users for x in plan(g, target=CPU, expected_calls=10**6).groups] == want


def test_recomputing_is_free_behind_memory() -> None:
    g = scaled("neg", 8192)
    c = kernel_cost(g, g.node.keys(), CPU)
    assert c.recompute == 0 and c.compute > 0, "bytes take longer than the repeated negations"
