"""Facts about nodes of the framework's graphs: names, effects, what reaches the output."""

from __future__ import annotations

import math
import operator

import torch
import torch.fx

from fusebound.capture import replay
from fusebound.capture.checks import must_run
from fusebound.capture.draws import makes_own_memory
from fusebound.capture.encode import words

SKIPPED = words("""
aten._assert_tensor_metadata.default aten._assert_async.msg
aten.sym_constrain_range.default aten.sym_constrain_range_for_size.default
""")
"""Checks that tracing inserts: they hold by construction of the graph, or are repeated by its operators."""

IDENTITY_AT_INFERENCE = words("""
aten.dropout.default aten.feature_dropout.default aten.alpha_dropout.default
aten.feature_alpha_dropout.default
""")
"""Operators that return their operand itself when they are switched off."""


def target_name(target: object) -> str:
    """`aten.add.Tensor`, `operator.mul`, `torch.sym_max`, `higher_order.cond`.

    Namespaces of custom operators that occur in the user's own program may be replayed from then on.
    """
    if isinstance(target, torch._ops.OpOverload):
        replay.allow(target.namespace)
        return f"{target.namespace}.{target._opname}.{target._overloadname}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    name = getattr(target, "__name__", str(target))
    if getattr(operator, name, None) is target:
        return f"operator.{name}"
    if getattr(math, name, None) is target:
        return f"math.{name}"
    return f"torch.{name}"


_DROPOUT_PARTS = {"bernoulli": "_draw", "div": "_scale", "mul": ""}
"""What the parts of a dropout are called after it: the product has its name."""


def user_name(node: torch.fx.Node, written: torch.fx.Node | None) -> str:
    """The traced node's name, or the user's operator where decomposition gave it an internal name."""
    if written is not None and (part := _DROPOUT_PARTS.get(_name(node.target))) is not None:
        whole = _name(written.target).removesuffix("_")
        if whole == "dropout":
            return whole + part
    if not node.name.startswith(("_", "native_")):
        return node.name
    if written is None:
        return node.name.lstrip("_")
    return (_name(written.target) or written.name).strip("_")


def _name(target: object) -> str:
    name = target._opname if isinstance(target, torch._ops.OpOverload) else ""
    return "unique" if name == "_unique2" else name


def live(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """Nodes that reach the output, plus those with an effect (random state)."""
    found: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in found or _has_effect(node):
            found.add(node)
            unread = node.args[:1] if makes_own_memory(node, target_name(node.target)) else ()
            found.update(n for n in node.all_input_nodes if n not in unread)
    return found


def _has_effect(node: torch.fx.Node) -> bool:
    t = node.target
    if node.op != "call_function" or not isinstance(t, torch._ops.OpOverload) or target_name(t) in SKIPPED:
        return False
    if target_name(t) == "aten._assert_scalar.default":
        return must_run(node)
    return torch.Tag.nondeterministic_seeded in t.tags or t._schema.is_mutable or not t._schema.returns


def used_outputs(node: torch.fx.Node, among: set[torch.fx.Node]) -> set[int]:
    """Which of several outputs are read, by nodes of `among`."""
    picks = [u for u in node.users if u in among and u.target is operator.getitem]
    return {i for u in picks if isinstance(i := u.args[1], int)}
