"""`torch._foreach_*` of several tensors as one call for each: its tensors have nothing in common but the operator.

Before → after: `foreach_mul([a, b], [2, 3])` → `foreach_mul([a], [2]), foreach_mul([b], [3])`, each of which fuses with
what its own tensor meets. Lists whose members share memory are refused before (E206), so that no order is lost.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx

from fusebound.capture.fxnodes import target_name
from fusebound.capture.lower import LOWERINGS


def split(graph: torch.fx.Graph) -> None:
    """Split the calls that have a lowering, in place."""
    for node in list(graph.nodes):
        name = target_name(node.target)
        if name.startswith("aten._foreach_") and name in LOWERINGS and len(node.meta["val"]) > 1:
            _split(graph, node)


def _split(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    parts: list[torch.fx.Node] = []
    with graph.inserting_before(node):
        for i, val in enumerate(node.meta["val"]):
            args = tuple(_member(a, i) for a in node.args)
            kwargs = {k: _member(a, i) for k, a in node.kwargs.items()}
            parts.append(graph.create_node("call_function", node.target, args, kwargs, node.name))
            parts[i].meta = {**node.meta, "val": [val]}
    for pick in list(node.users):
        assert pick.target is operator.getitem
        pick.args = (parts[pick.args[1]], 0)  # pyright: ignore[reportArgumentType, reportCallIssue]
    graph.erase_node(node)


def _member(argument: Any, i: int) -> Any:
    """The part of an argument that belongs to the i-th tensor: a list of one, or what serves all of them."""
    return [argument[i]] if isinstance(argument, list | tuple) else argument
