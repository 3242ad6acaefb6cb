"""Every rule runs: an operator that has one arrives whole, whatever other definitions of it the framework has."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from fusebound.capture.lower import LOWERINGS
from fusebound.capture.replay import resolve
from fusebound.capture.torch import capture

X = torch.rand(4, 6, 6) + 0.1
ARGUMENTS: dict[str, Any] = {
    "int": 1, "Optional[int]": 1, "List[int]": [0],
    "Optional[List[int]]": [0], "number": 2, "Optional[number]": 2, "float": 0.5, "bool": False, "str": "none",
}  # fmt: skip
"""Something of each type for the arguments that have no default and are no tensors."""
TAKEN_APART = frozenset(
    """
    aten.to.dtype aten.to.dtype_layout aten.to.other aten.reshape.default aten.view_as.default aten.positive.default
    aten.flatten.using_ints aten.unflatten.int aten.expand_as.default aten.broadcast_to.default aten.swapaxes.default
    aten.numpy_T.default aten.mT.default aten.movedim.intlist aten.movedim.int aten.narrow.default aten.split.sizes
    aten.chunk.default aten.unsafe_chunk.default aten.tensor_split.sections aten.tensor_split.indices
    aten.contiguous.default aten.lift_fresh.default
    """.split()
)
"""Views and conversions that the framework writes as simpler ones: their rules run inside composites only."""


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


def test_an_operator_with_a_rule_arrives_whole() -> None:
    calls = _calls()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        captured = capture(lambda x: [call(x) for call in calls.values()], (X,))
    arrived = {u.target for u in captured.graph.user_ops}
    assert len(calls.keys() & arrived) >= 200
    assert not calls.keys() - arrived - TAKEN_APART
