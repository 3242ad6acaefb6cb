"""What the branches and loop bodies of control flow may hold, so that each can be a graph of its own (E209)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.fx

from fusebound.capture.source import shown, source_of
from fusebound.errors import CaptureError
from fusebound.ir.graph import Source

_FULL = torch.ops.aten.full.default


def check_branches(module: torch.fx.GraphModule) -> None:
    """Turn numbers that branches hold as 0-d tensors (`y[0] = 0`) into operators, which functionalisation takes.

    Raises E209 for a branch that holds a larger constant or writes into what it is given.
    """
    for inner, runner in _branches(module):
        for node in list(inner.graph.nodes):
            if node.op == "get_attr" and isinstance(
                t := getattr(inner, str(node.target), None), torch.Tensor
            ):
                _inline(inner, node, t)
        for node in inner.graph.nodes:
            _check_writes(node)
        _check_results(inner, source_of(runner))
        inner.recompile()


def _branches(module: torch.fx.GraphModule) -> Iterator[tuple[torch.fx.GraphModule, torch.fx.Node]]:
    """Subgraphs, those inside others too, each with the node that runs it."""
    for node in module.graph.nodes:
        inner = getattr(module, str(node.target), None) if node.op == "get_attr" else None
        if isinstance(inner, torch.fx.GraphModule):
            yield inner, next(iter(node.users), node)
            yield from _branches(inner)


def _inline(module: torch.fx.GraphModule, node: torch.fx.Node, constant: torch.Tensor) -> None:
    if constant.dim():
        reader = next(iter(node.users), node)
        raise refusal(
            f"a branch makes a constant tensor of shape {list(constant.shape)}", source_of(reader),
            "make it before the control flow, and name it in the branch",
        )  # fmt: skip
    with module.graph.inserting_before(node):
        made = module.graph.call_function(_FULL, ((), constant.item()), {"dtype": constant.dtype})
    made.meta = {
        "val": node.meta.get("val"),
        "stack_trace": next(iter(node.users), node).meta.get("stack_trace"),
    }
    node.replace_all_uses_with(made)
    module.graph.erase_node(node)
    delattr(module, str(node.target))


def _check_writes(node: torch.fx.Node) -> None:
    """Raise E209 for an operator that writes an operand of the branch, itself or through a view."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or not op._schema.is_mutable:
        return
    for a, schema in zip(node.args, op._schema.arguments, strict=False):
        if schema.is_write and isinstance(a, torch.fx.Node) and _owner(a).op == "placeholder":
            raise refusal(
                f"a branch writes into {_owner(a).name}, which it is given", source_of(node),
                "compute a new tensor and return it, or copy first: x.clone()",
            )  # fmt: skip


def _check_results(module: torch.fx.GraphModule, called: Source) -> None:
    """Raise E209 for a result that is an operand of the branch or a view of one, or that shows another's memory."""
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    seen: set[torch.fx.Node] = set()
    for node in output.all_input_nodes:
        owner = _owner(node)
        if owner.op == "placeholder" and isinstance(owner.meta.get("val"), torch.Tensor):
            said = f"a branch returns {owner.name}, which it is given, or a view of it"
        elif owner in seen:
            said = f"a branch returns two tensors in the memory of {owner.name}"
        else:
            seen.add(owner)
            continue
        made = source_of(node)
        raise refusal(said, made if made.file else called, "return a copy: x.clone()")


def _owner(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose memory a view shows."""
    while isinstance(op := node.target, torch._ops.OpOverload):
        if not any(r.alias_info is not None for r in op._schema.returns) or not node.all_input_nodes:
            break
        node = node.all_input_nodes[0]
    return node


def refusal(what: str, source: Source, hint: str) -> CaptureError:
    """The error for control flow that no graph holds."""
    return CaptureError(what, where=shown(source), hint=f"{hint}; or run it eagerly", code="E209")
