"""The primitive `random` and the input of kind seed: built, printed, read, checked, simulated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fusebound.analysis import philox
from fusebound.analysis.draws import generator_order
from fusebound.analysis.interpret import evaluate
from fusebound.errors import GraphError
from fusebound.ir.builder import Builder
from fusebound.ir.graph import Graph
from fusebound.ir.spec import verify
from fusebound.ir.text import parse_graph, print_graph


def two_draws() -> Graph:
    b = Builder("two")
    b.input("seed", (3,), "float32")
    for name in ("rand", "mask"):
        b.begin(name)
        (word,) = b.random((4, 5), 1)
        b.end("aten.randint.low", (), (), (word,), "random")
    return b.finish(("rand", "mask"))


def test_draws_are_numbered_and_share_one_seed() -> None:
    g = two_draws()
    verify(g)
    assert [(n.inputs, n.attr("draw")) for n in g.nodes] == [(("seed_0",), 0), (("seed_0",), 1)]
    assert g.seed == "seed_0"
    assert [i.value for i in g.given] == ["seed"]
    assert parse_graph(print_graph(g)) == g


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ((("draw", 0), ("word", 4)), "words 0 to 3"),
        ((("draw", -1), ("word", 0)), "no 32-bit number"),
        ((("word", 0),), "needs the attribute draw"),
    ],
)
def test_faults_of_attributes(attrs: tuple[tuple[str, int], ...], message: str) -> None:
    g = two_draws()
    bad = replace(g, nodes=(replace(g.nodes[0], attrs=attrs), *g.nodes[1:]))
    with pytest.raises(GraphError, match=message):
        verify(bad)


def test_the_key_is_a_single_integer() -> None:
    g = two_draws()
    with pytest.raises(GraphError, match="keyed by float32"):
        verify(replace(g, nodes=(replace(g.nodes[0], inputs=("seed",)), *g.nodes[1:])))


def test_simulation_draws_the_same() -> None:
    g = two_draws()
    seed = 0x0123456789ABCDEF
    shapes = {v: tuple(int(d) for d in g.values[v].shape) for v in g.values}  # type: ignore[arg-type]
    found = evaluate(g, [n.id for n in g.nodes], {"seed_0": np.asarray(seed)}, shapes, "fused")
    for draw, name in enumerate(("rand", "mask")):
        assert np.array_equal(found[name], philox.words(seed, draw, (4, 5))[0])


def test_what_moves_the_generator() -> None:
    """By counter nothing does; what eager draws, in program order."""
    g = two_draws()
    assert generator_order(g, "accurate") == ()
    assert generator_order(g, "eager") == ("rand", "mask")
