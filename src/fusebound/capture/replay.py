"""Runs one user operator through the framework, exactly as the user wrote it."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fusebound.capture.encode import decode, words
from fusebound.errors import FormatError
from fusebound.ir.control import MODULE
from fusebound.ir.graph import Attr, Ref, Token, UserOp, refs

Prepared = Callable[[Sequence[Any]], tuple[Any, ...]]

TORCH = frozenset(("aten", "prims"))
"""The libraries of torch itself; every other one is there once the user's code has registered it."""
_NAMESPACES: set[str] = {*TORCH}
_DENIED = words("""
from_file set_data set_ resize_ resize_as_ resize_as_sparse_ _resize_output_ record_stream
_cuda_getCurrentRawStream _print
""")
_OPERATORS = words(
    "add sub mul floordiv truediv mod neg pow eq ne lt le gt ge and_ or_ not_ getitem pos abs xor"
)
_SYMBOLIC = words("sym_max sym_min sym_not sym_float sym_int sym_ite sym_sum sym_sqrt")
_MATH = words("floor ceil trunc")
_PICK = re.compile(r"^(?P<op>.*)\[(?P<pick>[\d,]+)\]$")


def allow(namespace: str) -> None:
    """Let operators of this `torch.ops` namespace be replayed (custom operators of the user)."""
    _NAMESPACES.add(namespace)


def split_target(target: str) -> tuple[str, tuple[int, ...] | None]:
    """`aten.max.dim[0]` → `aten.max.dim` and the outputs that are kept; None where all are."""
    found = _PICK.match(target)
    if not found:
        return target, None
    return found["op"], tuple(int(i) for i in found["pick"].split(","))


def resolve(target: str) -> Callable[..., Any]:
    """The framework's callable of that name; raises FormatError for a name outside the allow-list."""
    namespace, _, rest = target.partition(".")
    if namespace == "operator" and rest in _OPERATORS:
        return getattr(operator, rest)
    if namespace == "torch" and rest in _SYMBOLIC:
        return getattr(torch, rest)
    if namespace == "math" and rest in _MATH:
        return getattr(math, rest)
    if namespace == "higher_order":
        found = getattr(torch.ops.higher_order, rest, None)
        if isinstance(found, torch._ops.HigherOrderOperator):
            return found
    packet, _, overload = rest.partition(".")
    if namespace in _NAMESPACES and packet not in _DENIED and overload:
        found = getattr(getattr(torch.ops, namespace), packet, None)
        found = getattr(found, overload, None)
        # Operators of TorchScript's interpreter alone (`aten::save`, `aten::manual_seed`) are not in the dispatcher.
        if isinstance(found, torch._ops.OpOverload) and torch._C._dispatch_has_kernel(found.name()):
            return found
    raise FormatError(
        f"{target!r} is not an operator that may be run", code="E113",
        hint="register a custom operator with fusebound.register_op, or check the spelling",
    )  # fmt: skip


def schema(target: str) -> torch.FunctionSchema:
    """The schema of an operator; raises FormatError for a name outside the allow-list."""
    op = resolve(target)
    assert isinstance(op, torch._ops.OpOverload)
    return op._schema


def is_alias(op: UserOp) -> bool:
    """Whether an operator without primitives returns a view: its schema says so."""
    target = split_target(op.target)[0]
    if op.kind != "opaque" or not target.startswith("aten."):
        return False
    return any(r.alias_info is not None for r in schema(target).returns)


def is_in_place(op: UserOp) -> bool:
    """Whether the user wrote the operator in place."""
    return op.written.startswith("aten.") and schema(op.written).is_mutable


def prepare(op: UserOp, modules: Mapping[str, Callable[..., Any]] | None = None) -> Prepared:
    """A callable that takes the values of `inputs_of(op)`, in that order, and returns the outputs of `op`.

    `modules` holds the submodules that control flow calls, by name.
    """
    target, kept = split_target(op.target)
    fn = resolve(target)
    ids = inputs_of(op)
    as_tuple = target.startswith("higher_order.")
    position = {id: i for i, id in enumerate(ids)}
    args = [_slot(a, position, modules or {}, as_tuple) for a in op.args]
    kwargs = {k: _slot(a, position, modules or {}, as_tuple) for k, a in op.kwargs}
    outputs = len(op.outputs)

    def run(values: Sequence[Any]) -> tuple[Any, ...]:
        out = fn(*[a(values) for a in args], **{k: a(values) for k, a in kwargs.items()})
        if isinstance(out, list | tuple):
            return tuple(out) if kept is None else tuple(out[i] for i in kept)
        return (out,) if outputs else ()

    return run


def inputs_of(op: UserOp) -> tuple[str, ...]:
    """Ids of the values that the operator reads, each once, in the order of its arguments."""
    found = [r for a in op.args for r in refs(a)] + [r for _, a in op.kwargs for r in refs(a)]
    return tuple(dict.fromkeys(found))


def call(
    op: UserOp, env: Mapping[str, Any], modules: Mapping[str, Callable[..., Any]] | None = None
) -> tuple[Any, ...]:
    """Run the operator on values looked up by id."""
    return prepare(op, modules)([env[i] for i in inputs_of(op)])


def _slot(
    a: Attr, position: Mapping[str, int], modules: Mapping[str, Callable[..., Any]], as_tuple: bool
) -> Callable[[Sequence[Any]], Any]:
    """A getter for one argument: constants are decoded once, here."""
    match a:
        case Ref(id):
            return operator.itemgetter(position[id])
        case Token(name) if name.startswith(MODULE):
            if name.removeprefix(MODULE) not in modules:
                raise FormatError(
                    f"the graph does not carry the submodule {name.removeprefix(MODULE)!r}", code="E114"
                )
            module = modules[name.removeprefix(MODULE)]
            return lambda _: module
        case tuple() if refs(a) or as_tuple:
            parts = [_slot(i, position, modules, as_tuple) for i in a]
            kind = tuple if as_tuple else list
            return lambda values: kind(p(values) for p in parts)
        case _:
            constant = decode(a, {})
            return lambda _: constant
