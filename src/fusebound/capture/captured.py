"""What capture returns: the graph, the programs that it came from, and how to call it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import SUPPORTED_NODES, TreeSpec, tree_flatten

from fusebound.errors import CaptureError, UsageError
from fusebound.ir.graph import Graph, Ref
from fusebound.words import count

Getter = Callable[[], Any]


@dataclass(frozen=True)
class Captured:
    """A captured function: its graph, the framework's programs that it came from, and how to call it.

    `program` is the undecomposed program (the oracle's), `functional` the one that the graph mirrors; both
    are None for a graph that was loaded from a file. `constants` are the Python numbers among the arguments
    that capture baked in: `bind` refuses other ones. `modules` are the framework's subgraphs, by the names that
    arguments have for them.
    """

    graph: Graph
    program: ExportedProgram | None
    functional: ExportedProgram | None
    fn: Callable[..., Any]
    constants: tuple[tuple[str, Any], ...] = ()
    returns: tuple[Any, ...] = ()
    in_spec: TreeSpec | None = None
    out_spec: TreeSpec | None = None
    keywords: tuple[str, ...] = ()
    user_inputs: tuple[str | None, ...] = ()
    modules: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    state: Mapping[str, Getter] = field(default_factory=dict)

    @property
    def is_ordered(self) -> bool:
        """Whether `fn` reads and writes its arguments in the user's order; a graph that was loaded writes them last."""
        return self.functional is not None

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
        """Tensors and numbers in the order of `graph.inputs`; parameters and buffers by reference.

        Raises UsageError if the arguments' structure differs from the captured one, CaptureError (E207) if a
        baked number does.
        """
        flat, spec = self._flatten(args, kwargs or {})
        if spec != self.in_spec:
            what = "the arguments are structured differently from the captured ones"
            raise UsageError(
                f"{what}: {_difference(self.in_spec, spec)}", code="E120",
                hint=f"call it as it was captured, with {_signature_of(self.in_spec)}, or capture it again",
            )  # fmt: skip
        baked = iter(self.constants)
        given: dict[str, Any] = {}
        for id, value in zip(self.user_inputs, flat, strict=True):
            if id is not None:
                given[id] = value
                continue
            name, constant = next(baked)
            if not _same_constant(constant, value):
                raise CaptureError(
                    f"argument {name} was {constant!r} at capture and is {value!r} now", code="E207",
                    hint="capture again: Python numbers are part of the captured graph",
                )  # fmt: skip
        return [given[i] if i in given else self.state[i]() for i in self.graph.input_ids]

    def subgraph(self, name: str) -> Captured:
        """A subgraph as a function of its operands, by position, that runs operators as this one does."""
        inner = self.graph.subgraphs[name]
        returns = tuple(Ref(o) for o in inner.outputs)
        return Captured(
            inner, None, None, self.fn, returns=returns, user_inputs=inner.input_ids, modules=self.modules
        )

    def _flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], TreeSpec]:
        if set(kwargs) == set(self.keywords):
            kwargs = {k: kwargs[k] for k in self.keywords}
        return tree_flatten((tuple(args), dict(kwargs)))

    def unflatten(self, outputs: Sequence[Any]) -> Any:
        """The user's structure, from values in the order of `graph.outputs`."""
        values = iter(outputs)
        flat = [next(values) if isinstance(r, Ref) else r for r in self.returns]
        if self.out_spec is None:
            return flat[0] if len(flat) == 1 else tuple(flat)
        return _built(iter(flat), self.out_spec)


def _built(leaves: Iterator[Any], spec: TreeSpec) -> Any:
    """`tree_unflatten`, which makes plain tuples of sizes."""
    if spec.is_leaf():
        return next(leaves)
    parts = [_built(leaves, child) for child in spec.children()]
    return (
        torch.Size(parts)
        if spec.type is torch.Size
        else SUPPORTED_NODES[spec.type].unflatten_fn(parts, spec.context)
    )


def seed_holder() -> Getter:
    """What stands for the seed among the inputs that are bound: the runtime draws the seed itself, and only where a
    kernel reads it."""
    seed = torch.zeros((), dtype=torch.int64)
    return lambda: seed


def _difference(captured: TreeSpec | None, given: TreeSpec) -> str:
    """Where two structures of (positional, keyword) arguments part, in words."""
    if captured is None:
        return "it takes none"
    (args, kwargs), (now, now_kwargs) = captured.children(), given.children()
    if args.num_children != now.num_children or set(kwargs.context) != set(now_kwargs.context):
        return f"captured with {_signature(args, kwargs)}, called with {_signature(now, now_kwargs)}"
    name, a, b = next(_parted("", args, now), None) or next(_parted("", kwargs, now_kwargs))
    return f"argument {name} was {_words(a)} at capture and is {_words(b)} now"


def _parted(name: str, a: TreeSpec, b: TreeSpec) -> Iterator[tuple[str, TreeSpec, TreeSpec]]:
    """The innermost places where two structures are unlike."""
    if (a.type, a.context, a.num_children) != (b.type, b.context, b.num_children):
        yield name, a, b
        return
    keys = a.context if a.type is dict else range(a.num_children)
    for key, x, y in zip(keys, a.children(), b.children(), strict=True):
        yield from _parted(f"{name}[{key!r}]", x, y)


def _signature_of(spec: TreeSpec | None) -> str:
    return _signature(*spec.children()) if spec is not None else "no arguments"


def _signature(args: TreeSpec, kwargs: TreeSpec) -> str:
    by_name = f" and {', '.join(map(repr, kwargs.context))} by keyword" if kwargs.num_children else ""
    return f"{count(args.num_children, 'argument')} by position{by_name}"


def _words(spec: TreeSpec) -> str:
    if spec.is_leaf():
        return "one value"
    name = getattr(spec.type, "__name__", str(spec.type))
    return f"a {name} of {', '.join(map(repr, spec.context)) if spec.type is dict else spec.num_children}"


def _same_constant(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b or (a != a and b != b))
