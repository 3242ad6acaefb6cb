"""The built-in programs: seeded, exportable, of the sizes that they claim."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

from fusebound import scenarios
from fusebound.errors import UsageError


def copied(args: tuple[object, ...]) -> tuple[object, ...]:
    return tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, args)


def assert_same(left: object, right: object) -> None:
    for a, b in zip(tree_leaves(left), tree_leaves(right), strict=True):
        assert a is b is None or torch.equal(a, b)


@pytest.mark.parametrize("name", scenarios.names())
def test_is_seeded(name: str) -> None:
    (fn1, args1), (fn2, args2) = scenarios.build(name, small=True), scenarios.build(name, small=True)
    assert_same(args1, args2)
    with torch.no_grad():
        assert_same((fn1(*args1), args1), (fn2(*args2), args2))


class Program(torch.nn.Module):
    """A function as the module that torch.export wants."""

    def __init__(self, fn: object) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: object) -> object:
        return self.fn(*args)


@pytest.mark.parametrize("name", scenarios.names())
def test_exports_and_computes_the_same(name: str) -> None:
    fn, args = scenarios.build(name, small=True)
    module = fn if isinstance(fn, torch.nn.Module) else Program(fn)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, copied(args), strict=False).module()
        left, right = copied(args), copied(args)
        got, wanted = program(*left), fn(*right)
    assert_same((got, left), (wanted, right))


def test_detection_ends_in_a_size_that_depends_on_the_data() -> None:
    fn, (anchors, deltas, logits) = scenarios.build("detection", small=True)
    sizes = {fn(anchors, deltas, logits + shift)[1].shape[0] for shift in (-2.0, 0.0, 4.0)}
    assert len(sizes) > 1


def test_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(UsageError) as caught:
        scenarios.build("bert-layr")
    assert "bert-layer" in caught.value.hint


def test_make_run_names_one_of_them() -> None:
    makefile = (Path(__file__).parents[3] / "Makefile").read_text(encoding="utf-8")
    (default,) = re.findall(r"^SCENARIO \?= (\S+)$", makefile, re.MULTILINE)
    assert default in scenarios.names() and len(scenarios.names()) == 10
