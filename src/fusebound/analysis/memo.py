"""Facts of a graph that many candidates ask for again are computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Concatenate, ParamSpec, TypeVar

from fusebound.ir.graph import Graph

P = ParamSpec("P")
R = TypeVar("R")

ENTRIES = 20_000


class _Same:
    """A graph compared by identity; the cache that holds it keeps it alive, so identities stay unique."""

    __slots__ = ("graph",)

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __hash__(self) -> int:
        return id(self.graph)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.graph is other.graph


def per_graph(fn: Callable[Concatenate[Graph, P], R]) -> Callable[Concatenate[Graph, P], R]:
    """Remember a pure function of a graph and hashable arguments."""

    @lru_cache(ENTRIES)
    def cached(same: _Same, args: tuple[Hashable, ...]) -> R:
        return fn(same.graph, *args)  # pyright: ignore[reportCallIssue]

    @wraps(fn)
    def wrapper(graph: Graph, *args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs:
            return fn(graph, *args, **kwargs)
        return cached(_Same(graph), args)

    return wrapper
