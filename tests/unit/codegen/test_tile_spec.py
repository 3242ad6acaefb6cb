"""The spec of tile programs finds what would touch foreign memory or leave elements unwritten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.codegen.graphs import graph, nodes, program

from fusebound.codegen import build, tile
from fusebound.codegen.spec import faults
from fusebound.errors import BuildError
from fusebound.ir.builder import Builder
from fusebound.ir.graph import Graph
from fusebound.target import get


def doubled() -> Graph:
    def make(b: Builder) -> str:
        b.input("x", (33,), "float32")
        b.begin("f")
        return b.emit("add", "x", "x")

    return graph(make)


def changed(k: tile.Kernel, change: Callable[[tile.Stmt], tile.Stmt | None]) -> tile.Kernel:
    """The program with every statement replaced, or left out where `change` returns None."""

    def walk(body: tuple[tile.Stmt, ...]) -> tuple[tile.Stmt, ...]:
        kept = (
            replace(s, body=walk(s.body)) if isinstance(s, (tile.Loop, tile.Pass)) else change(s)
            for s in body
        )
        return tuple(s for s in kept if s is not None)

    return replace(k, nests=tuple(replace(n, body=walk(n.body)) for n in k.nests))


def shifted(by: int) -> Callable[[tile.Stmt], tile.Stmt]:
    return lambda s: replace(s, offset=s.offset + by) if isinstance(s, tile.Load) else s


def test_a_sound_program_has_no_faults() -> None:
    assert faults(doubled(), program(doubled())) == []


@pytest.mark.parametrize(
    ("by", "text"), [(1, "reaches elements 1 to 33 of 33"), (-1, "reaches elements -1 to 31")]
)
def test_a_load_beside_its_memory(by: int, text: str) -> None:
    found = faults(doubled(), changed(program(doubled()), shifted(by)))
    assert len(found) == 1 and text in found[0]


def test_elements_that_are_not_stored() -> None:
    k = changed(program(doubled()), lambda s: None if isinstance(s, tile.Store) else s)
    assert faults(doubled(), k) == ["f has 33 elements, 0 are stored"]


def test_an_unsound_program_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.lower, "lower", lambda *a, **k: changed(program(doubled()), shifted(9)))
    with pytest.raises(BuildError, match="unsound"):
        build.compile_group(doubled(), nodes(doubled()), get("host"), name="k")


def test_an_expanded_result_is_stored_once() -> None:
    def make(b: Builder) -> str:
        b.input("x", (33, 1), "float32")
        b.begin("f")
        y = b.emit("expand", b.emit("neg", "x"), shape=(33, 4))
        b.restride(y, (1, 0))
        return y

    assert faults(graph(make), program(graph(make))) == []
