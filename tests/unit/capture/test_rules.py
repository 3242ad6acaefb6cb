"""Every rule runs: an operator that has one arrives whole, though the framework has other definitions of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusebound.capture.encode import words
from fusebound.capture.lower import LOWERINGS
from fusebound.capture.replay import resolve
from fusebound.capture.torch import capture

X = torch.rand(4, 6, 6) + 0.1
ARGUMENTS: dict[str, Any] = {
    "int": 2, "Optional[int]": 1, "List[int]": [0],
    "Optional[List[int]]": [0], "number": 2, "Optional[number]": 2, "float": 0.5, "bool": False, "str": "none",
}  # fmt: skip
"""Something of each type for the arguments that have no default and are no tensors."""
TAKEN_APART = words(
    """
    aten.to.dtype aten.to.dtype_layout aten.to.other aten.reshape.default aten.view_as.default aten.positive.default
    aten.flatten.using_ints aten.unflatten.int aten.expand_as.default aten.broadcast_to.default aten.swapaxes.default
    aten.numpy_T.default aten.mT.default aten.movedim.intlist aten.movedim.int aten.narrow.default aten.split.sizes
    aten.chunk.default aten.unsafe_chunk.default aten.tensor_split.sections aten.tensor_split.indices
    aten.contiguous.default aten.lift_fresh.default aten.type_as.default
    """
)
"""Views and conversions that the framework writes as simpler ones: their rules run inside composites only."""

ORDERED = words("aten.bernoulli.p aten.rand_like.default aten.randn_like.default")
"""Draws in the order of memory: `draws` puts operators of ours in their place."""


def _calls() -> dict[str, Callable[..., Any]]:
    """Operators that take such arguments, floats or integers, as functions of X and of integers."""
    found: dict[str, Callable[..., Any]] = {}
    for target in LOWERINGS:
        if not target.startswith("aten."):
            continue
        op = resolve(target)
        for whole in (False, True):
            call = _call(op, whole)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    call(X.to("meta"))  # some kernels crash where this raises
                    call(X)
                except Exception:
                    continue
            found[target] = call
            break
    return found


def _call(op: Any, whole: bool) -> Callable[[torch.Tensor], Any]:
    def call(x: torch.Tensor) -> Any:
        v = (x * 3).long() if whole else x + 0
        given = {**ARGUMENTS, "Tensor": v, "Optional[Tensor]": v, "List[Tensor]": [v, v]}
        wanted = [a for a in op._schema.arguments if not a.has_default_value()]
        args = [given[str(a.type)] for a in wanted if not a.kwarg_only]
        return op(*args, **{a.name: given[str(a.type)] for a in wanted if a.kwarg_only})

    return call


def test_every_rule_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, ran = _calls(), set[str]()

    def recording(target: str, rule: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            ran.add(target)
            return rule(*args, **kwargs)

        return call

    for target, rule in list(LOWERINGS.items()):
        monkeypatch.setitem(LOWERINGS, target, recording(target, rule))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        capture(lambda x: [call(x) for call in calls.values()], (X,))
    assert len(calls.keys() & ran) >= 300
    assert not calls.keys() - ran - TAKEN_APART - ORDERED
