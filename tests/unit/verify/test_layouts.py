"""Calls whose arguments lie otherwise in memory: what a caller may meet."""

from __future__ import annotations

import torch
from tests.unit.verify.programs import trace
from tests.unit.verify.test_inputs import leaf

from fusebound.verify.check import verify
from fusebound.verify.layouts import LAYOUTS, level, overlapped, relaid


def test_another_layout_keeps_the_values_and_what_is_written() -> None:
    leaves = [leaf(torch.randn(4, 5)), leaf(torch.randn(4, 5), "y"), leaf(torch.randn(5), "w", "param")]
    level(leaves)
    for kind in LAYOUTS:
        found = relaid(leaves, kind, fixed=(1,))
        assert found.keys() == {0}
        assert torch.equal(found[0], leaves[0].value) and found[0].stride() != (5, 1)


def test_overlapping_arguments_are_one_element_apart() -> None:
    x, y = torch.randn(6), torch.randn(6)
    (pair,) = overlapped([leaf(x), leaf(y, "y"), leaf(torch.ones(6, dtype=torch.int64), "t")], written=(0,))
    assert pair[1].data_ptr() - pair[0].data_ptr() == x.element_size()
    assert torch.equal(pair[1], y) and torch.equal(pair[0][1:], y[:5])
    assert overlapped([leaf(x), leaf(y, "y")], written=()) == []


def test_a_program_that_is_compiled_for_strides_is_compiled_once_for_each_layout() -> None:
    """As Inductor's is, for a set of strides and a number of threads, whatever the values and draws."""
    compiled: dict[object, int] = {}

    def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y + 1

    def specialized(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        key = x.stride(), y.stride(), torch.get_num_threads()
        compiled[key] = compiled.get(key, 0) + 1
        return scaled(x, y)

    args = torch.randn(4, 5), torch.randn(5)
    assert verify(specialized, trace(scaled, *args), args).ok
    assert len(compiled) == 1 + 1 + len(LAYOUTS)
    assert sum(compiled.values()) > 10 * len(compiled), "over all values and draws"


def test_a_result_too_many_on_another_layout_is_a_fault() -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def more(x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        return x * 2 if x.is_contiguous() else (x * 2, x)

    args = (torch.randn(4, 5),)
    found = verify(more, trace(doubled, *args), args)
    assert any(fault.startswith("2 outputs where eager has 1") for fault in found.faults)
