"""What a program's shapes rest on besides its arguments: numbers that it reads out of tensors (E210)."""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
import torch.fx

from fusebound.capture.source import shown, source_of
from fusebound.errors import CaptureError

_ASSERT = torch.ops.aten._assert_scalar.default
_READ = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)
_SIZE = torch.ops.aten.sym_size.int
_NARROW = torch.ops.aten.narrow.default


def must_run(node: torch.fx.Node) -> bool:
    """Whether a check of tracing has to be repeated at every call: `torch._check` of a number read from a tensor.

    Bounds of sizes that operators return hold always, and equal sizes are what the operators themselves ask for.
    """
    test = _tested(node)
    return test is not None and not is_equality(node) and _reads(test)


def is_equality(node: torch.fx.Node) -> bool:
    """Whether a node is a check that two numbers are equal: sizes that tracing takes for equal eager may broadcast."""
    test = _tested(node)
    return test is not None and test.target is operator.eq


def _tested(node: torch.fx.Node) -> torch.fx.Node | None:
    """What a check asserts, where that is computed."""
    test = node.args[0] if node.target is _ASSERT else None
    return test if isinstance(test, torch.fx.Node) else None


def _reads(node: torch.fx.Node) -> bool:
    """Whether a number depends on one that is read from a tensor."""
    return node.target in _READ or any(
        _reads(n) for n in node.all_input_nodes if not isinstance(n.meta.get("val"), torch.Tensor)
    )


def check_sizes(module: torch.fx.GraphModule) -> None:
    """Raise E210 where tracing took a number that only the run knows for a constant, to make shapes fit.

    Such a program would be right for that one number, where eager takes others too (a size of 1 is broadcast).
    """
    inner = (m for m in module.modules() if isinstance(m, torch.fx.GraphModule))
    for node, number in (found for m in inner for found in _assumed(m.graph)):
        if not _is_narrow(node, number):
            what = node.all_input_nodes[0] if node.target is _SIZE else node
            raise CaptureError(
                f"the shapes fit only where {what.name} {'has the size' if what is not node else 'is'} {number},"
                " which only the run knows",
                where=shown(source_of(what)), code="E210",
                hint=f"use the number {number} itself, or run it eagerly",
            )  # fmt: skip


def _assumed(graph: torch.fx.Graph) -> Iterator[tuple[torch.fx.Node, int]]:
    """Numbers that are asserted to be one constant, and known to be from then on."""
    for node in graph.nodes:
        test = _tested(node)
        if test is not None and is_equality(node) and str(test.meta.get("val")) == "True":
            found, number = test.args
            if isinstance(found, torch.fx.Node) and isinstance(number, int):
                yield found, number


def unlock(node: torch.fx.Node) -> str:
    """What `torch._check` would change for a slice of a fixed length from a position that only the run knows: with
    its bounds checked it has a fixed size. "" for every other operator."""
    if node.target is not torch.ops.aten.slice.Tensor or len(node.args) != 4:
        return ""
    x, dim, *ends = node.args
    start, stop = (a.meta.get("val") if isinstance(a, torch.fx.Node) else a for a in ends)
    whole = x.meta["val"].shape[dim] if isinstance(x, torch.fx.Node) and isinstance(dim, int) else None
    if (
        not isinstance(start, torch.SymInt)
        or not isinstance(stop, torch.SymInt)
        or not isinstance(whole, int)
    ):
        return ""
    length = str(stop - start)
    if not length.isdigit():
        return ""
    return (
        f"torch._check({start} >= 0) and torch._check({start} + {length} <= {whole}), {start} being where the slice"
        f" begins, would make its size {length}"
    )


def _is_narrow(node: torch.fx.Node, number: int) -> bool:
    """The size of `x.narrow(dim, start, 4)` is 4, wherever it starts."""
    narrowed = node.all_input_nodes[0] if node.target is _SIZE else node
    return narrowed.target is _NARROW and bool(narrowed.args[3] == number)
