"""Which captured function a graph came from, so that a plan can be built without naming the function again.

The reference travels with the graph and dies with it; it is no part of the graph's value, key or text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusebound.errors import UsageError
from fusebound.ir.graph import Graph

if TYPE_CHECKING:
    from fusebound.capture.torch import Captured

_KEY = "captured function"


def remember(captured: Captured) -> Graph:
    """The graph of a captured function, which `recall` finds its way back from."""
    vars(captured.graph)[_KEY] = captured
    return captured.graph


def recall(graph: Graph) -> Captured:
    """The captured function of a graph; a graph from elsewhere is run by its own operators.

    Raises UsageError (E109) where that is impossible because the graph needs more than its text holds.
    """
    found = vars(graph).get(_KEY)
    if found is not None:
        return found
    from fusebound.api.pipeline import capture_model
    from fusebound.api.records import from_graph

    try:
        captured = capture_model(from_graph(graph, graph.name))
    except Exception as error:
        hint = "capture the function with fusebound.capture and plan that graph"
        raise UsageError(
            f"this graph cannot be run: {error}", where=graph.name, hint=hint, code="E109"
        ) from error
    vars(graph)[_KEY] = captured
    return captured
