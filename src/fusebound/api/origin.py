"""Which captured function a graph came from, so that a plan can be built without naming the function again.

The reference travels with the graph and dies with it; it is no part of the graph's value, key or text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

    Raises FormatError or GraphError for a graph whose operators cannot be run.
    """
    found = vars(graph).get(_KEY)
    if found is None:
        from fusebound.capture.saved import captured_from_graph

        found = vars(graph)[_KEY] = captured_from_graph(graph)
    return found
