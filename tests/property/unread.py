"""Operators that are not run since nothing reads what they make (docs/gates.md, Exceptions): they raise nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node

from fusebound.capture.torch import Captured


class Last(Interpreter):
    """Runs a graph and knows the node that it came to."""

    node: Node

    def run_node(self, n: Node) -> Any:
        self.node = n
        return super().run_node(n)


def raises_unread(captured: Captured, args: Sequence[torch.Tensor]) -> bool:
    """Whether what raises on these arguments, which it may overwrite, is an operator that no output comes from and that
    the functional program does without: had it written to an argument, or to memory that is read later under another
    name, that would still have it."""
    assert captured.program is not None and captured.functional is not None
    run = Last(captured.program.module(check_guards=False))
    try:
        run.run(*args)
    except Exception:
        name = _name(run.node)
        kept = _count(captured.functional, name) == _count(captured.program, name)
        return bool(name) and not kept and not _is_read(run.node)
    return False


def _is_read(node: Node) -> bool:
    return any(n.op == "output" or _is_read(n) for n in node.users)


def _name(node: Node) -> str:
    """The operator's name without the mark of the form that works in place."""
    return node.target._schema.name.rstrip("_") if isinstance(node.target, torch._ops.OpOverload) else ""


def _count(program: ExportedProgram, name: str) -> int:
    return sum(_name(n) == name for n in program.graph.nodes)
