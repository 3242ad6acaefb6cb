"""A graph from a file in the place of a captured function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusebound.errors import UsageError
from fusebound.ir.graph import Graph

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@dataclass(frozen=True)
class LoadedGraph:
    """What the runtime and the verifier need of a captured function, for a graph that was read from a file.

    `fn` takes the graph's inputs in order and runs its operators through the framework; `program` is its
    export, which the oracle reads.
    """

    graph: Graph
    program: ExportedProgram
    fn: Callable[..., Any]

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """The arguments themselves; raises UsageError (E120) for another number of them."""
        if kwargs or len(args) != len(self.graph.inputs):
            what = f"this graph takes {len(self.graph.inputs)} arguments by position"
            raise UsageError(what, where=self.graph.name, code="E120")
        return list(args)

    def unflatten(self, outputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs as a tuple."""
        return tuple(outputs)
