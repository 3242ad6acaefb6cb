"""A graph from a file in the place of a captured function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusebound.capture.torch import Captured
from fusebound.errors import UsageError


class LoadedGraph(Captured):
    """A graph that was read from a file; every input is an argument, parameters and buffers too.

    `fn` takes the graph's inputs in order and runs its operators through the framework; `program` is its
    export, which the oracle reads.
    """

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """The arguments themselves; raises UsageError (E120) for another number of them."""
        if kwargs or len(args) != len(self.graph.inputs):
            what = f"this graph takes {len(self.graph.inputs)} arguments by position"
            raise UsageError(what, where=self.graph.name, code="E120")
        return list(args)

    def unflatten(self, outputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs as a tuple."""
        return tuple(outputs)
