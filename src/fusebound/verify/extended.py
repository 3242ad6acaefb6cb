"""A reference for float64 programs: the user's program in long double, for the operators that have such a
form.

The program is decomposed by the framework's own table into core operators, which keeps its meaning in exact
arithmetic, and each is evaluated by numpy in `longdouble` (64 bits of mantissa on x86, 113 on 64-bit Arm).
Where an operator is missing, or `longdouble` is no wider than float64, there is no reference, and the
caller compares with eager.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.fx
from torch._decomp import _core_aten_decompositions_post_autograd
from torch._ops import OperatorBase, OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.utils import _pytree as pytree

from fusebound.capture.decompose import DROPOUT, eager_draws, looking_only_at, preservable
from fusebound.capture.draws import consumes, makes_own_memory, own_memory
from fusebound.capture.encode import words
from fusebound.capture.fxnodes import target_name
from fusebound.capture.replay import resolve
from fusebound.verify.call import Capture, Leaf, program_of
from fusebound.verify.exact import discontinuous
from fusebound.verify.extended_ops import OPS, Wide, converted, rounded
from fusebound.verify.remainders import moved, remainder_of
from fusebound.verify.seen import number_as, seen_as, user_dtype

_LIMIT = 1 << 18
"""Elements of a value beyond which long double takes too long."""


_PLACEMENT = frozenset(("layout", "device", "pin_memory", "memory_format"))
"""Arguments that say where a result lies, not what it is."""


_CHECKS = frozenset(("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size"))
"""What raises where eager does: the reference is asked for after a run that did not."""


_FILLS = words("aten.uniform.default aten.normal_functional.default")
"""Functional forms of operators that exist in place alone."""


class NoReference(Exception):
    """There is no wider reference, and why."""


_DECOMPOSED: WeakKeyDictionary[ExportedProgram, ExportedProgram] = WeakKeyDictionary()
"""Programs taken apart, for as long as the given ones live."""


def _decomposed(source: ExportedProgram) -> ExportedProgram:
    table, composites = _definitions()
    with warnings.catch_warnings():
        # Decomposing warns of the framework's own internals.
        warnings.simplefilter("ignore")
        try:
            with looking_only_at(composites), eager_draws():
                return source.run_decompositions(dict(table))
        except Exception as why:  # the framework's own definitions fail on some of its programs
            raise NoReference(f"not to be decomposed: {type(why).__name__}") from why


class Extended:
    """The long double form of one captured program; decomposed once. Raises NoReference where there is
    none."""

    def __init__(self, captured: Capture) -> None:
        if np.finfo(np.longdouble).nmant <= np.finfo(np.float64).nmant:
            raise NoReference("long double is no wider than float64 here")
        source = program_of(captured)
        if any(map(_is_random_attention, source.graph.nodes)):
            raise NoReference("attention with dropout, taken apart, draws in another order")
        if source not in _DECOMPOSED:
            _DECOMPOSED[source] = _decomposed(source)
        self._program = _DECOMPOSED[source]
        self._given = _keys(source)
        if not set(_keys(self._program)) <= set(self._given):
            raise NoReference("a check that may raise orders its operators by a token")

    def __call__(self, leaves: Sequence[Leaf]) -> tuple[list[Any], dict[int, Any]]:
        """The program's flat outputs (numpy; None and numbers as they are), and the inputs that it changes by
        position in `leaves`. Raises NoReference."""
        if any(leaf.is_tensor and leaf.value.numel() > _LIMIT for leaf in leaves):
            raise NoReference("the tensors are too large for long double")
        program = self._program
        held = dict(zip(self._given, (leaf.value for leaf in leaves), strict=True))
        with np.errstate(all="ignore"):
            inputs = [_wide(held[key]) for key in _keys(program)]
            returned = _Interpreter(program.graph_module).run(*inputs)
        return _sorted(program, list(returned), [name for _, name in self._given])


@functools.cache
def _definitions() -> tuple[dict[OperatorBase, Callable[..., Any]], frozenset[OpOverload]]:
    """The framework's table of core operators, and the composites in it; all others are taken apart by their own
    definitions."""
    table = {**_core_aten_decompositions_post_autograd(), **DROPOUT}
    return table, frozenset(preservable(table))


def _is_random_attention(n: torch.fx.Node) -> bool:
    op = n.target
    if not isinstance(op, OpOverload) or all(a.name != "dropout_p" for a in op._schema.arguments):
        return False
    return consumes(n)


def _keys(program: ExportedProgram) -> list[tuple[str, str]]:
    """What tells the inputs of a program apart, before and after decomposition."""
    specs = program.graph_signature.input_specs
    return [(s.kind.name, s.target or getattr(s.arg, "name", "")) for s in specs]


def _sorted(
    program: ExportedProgram, returned: list[Any], names: list[str]
) -> tuple[list[Any], dict[int, Any]]:
    outputs: list[Any] = []
    changed: dict[int, Any] = {}
    by_target = {name: i for i, name in enumerate(names)}
    for value, spec in zip(returned, program.graph_signature.output_specs, strict=True):
        if spec.kind == OutputKind.USER_OUTPUT:
            outputs.append(value)
        elif spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION) and spec.target:
            changed[by_target[spec.target]] = value
        else:
            raise NoReference(f"an output of kind {spec.kind.name}")
    return outputs, changed


def _wide(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.layout != torch.strided or value.is_complex():
        raise NoReference(f"an input of type {value.dtype}, {value.layout}")
    value = value.detach()
    if value.is_floating_point():
        return value.to(torch.float64).numpy().astype(np.longdouble)
    return value.numpy().copy()


class _Interpreter(torch.fx.Interpreter):
    """Evaluates core operators by the table `extended_ops.OPS`."""

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if not isinstance(n.target, OpOverload):
            if getattr(n.target, "__module__", "") == "_operator":
                return super().run_node(n)
            raise NoReference(f"no long double form of {n.target}")
        packet = n.target._schema.name.removeprefix("aten::")
        if packet in _CHECKS:
            return None
        if torch.Tag.nondeterministic_seeded in n.target.tags:
            return _drawn(n, n.target, args, kwargs)
        rule = OPS.get(f"{packet}.{n.target._overloadname}") or OPS.get(packet)
        if rule is None:
            raise NoReference(f"no long double form of aten.{packet}")
        kwargs = {k: v for k, v in kwargs.items() if k not in _PLACEMENT}
        try:
            if packet == "_to_copy":
                return _cast(args[0], user_dtype(n.args[0]), user_dtype(n))
            return _typed(_apply(rule, n, n.target, args, kwargs), n)
        except (TypeError, ValueError, IndexError, NotImplementedError) as why:
            raise NoReference(f"no long double form of aten.{packet}: {why}") from why


def _apply(rule: Callable[..., Any], n: torch.fx.Node, op: OpOverload, args: Any, kwargs: Any) -> Any:
    """The rule's result; a discontinuous operator's operands are rounded as every program sees them (`seen`)."""
    if not discontinuous(op):
        return rule(*args, **kwargs)
    seen = [_as_seen(x, types) for x, types in zip(args, seen_as(n, op), strict=True)]
    found = rule(*seen, **kwargs)
    if remainder_of(op) is None or not _floats(found):
        return found
    by = moved(found, seen, args)
    return np.where(np.isfinite(by) & (by != 0), found + by, found)


def _as_seen(x: Any, types: tuple[torch.dtype, ...]) -> Any:
    if isinstance(x, (int, float)):
        return number_as(x, types)
    return functools.reduce(rounded, types, x) if types and _floats(x) else x


def _drawn(n: torch.fx.Node, op: OpOverload, args: Any, kwargs: Any) -> Any:
    """A draw in the program's own types, through the framework; one that fills a tensor in the tensor's order."""
    first = n.args[0] if n.args else None
    name = target_name(op)
    fills = name in _FILLS or (isinstance(first, torch.fx.Node) and "empty" in str(first.target))
    if fills and makes_own_memory(n, name):
        target, args, kwargs, _ = own_memory(n, name, "")
        return _typed(_wide(resolve(target)(*args, **kwargs)), n)

    def narrow(of: Any, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        wide = value.astype(np.float64) if value.dtype == np.longdouble else value
        return torch.from_numpy(np.ascontiguousarray(wide).reshape(wide.shape)).to(user_dtype(of))

    dtype = {"dtype": user_dtype(n)} if any(a.name == "dtype" for a in op._schema.arguments) else {}
    made = op(*(narrow(a, v) for a, v in zip(n.args, args, strict=True)), **{**kwargs, **dtype})
    return _typed(pytree.tree_map_only(torch.Tensor, _wide, made), n)


def _cast(x: Wide, source: torch.dtype | None, to: torch.dtype | None) -> Any:
    if to is None or source is None:
        raise NoReference("a conversion of unknown type")
    if not to.is_floating_point:
        # What is stored is converted, and the framework decides what becomes of values out of range.
        if not _floats(x):
            return x.astype(_name(to))
        return torch.from_numpy(rounded(x, source).astype(np.float64)).to(to).numpy()
    return converted(x, source, to)


def _typed(result: Any, n: torch.fx.Node) -> Any:
    """The result in long double where the program has a floating value, else in the program's own type."""
    val = n.meta.get("val")
    if isinstance(val, (tuple, list)):
        return tuple(_one(r, v) for r, v in zip(result, val, strict=True))
    return _one(result, val)


def _one(result: Any, val: Any) -> Any:
    if not isinstance(val, torch.Tensor) or result is None:
        return result
    array = np.asarray(result)
    if val.is_complex() or not _has_shape(array, val):
        raise NotImplementedError(f"shape {array.shape}, type {val.dtype}")
    return array.astype(np.longdouble if val.is_floating_point() else _name(val.dtype), copy=False)


def _has_shape(array: Wide, val: torch.Tensor) -> bool:
    """Whether a result has the shape that tracing knows; a size of the run may be any."""
    sizes = zip(array.shape, val.shape, strict=False)
    return array.ndim == val.dim() and all(not isinstance(n, int) or m == n for m, n in sizes)


def _floats(x: Any) -> bool:
    return np.asarray(x).dtype == np.longdouble


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def split(value: Any) -> Any:
    """Long double as a float64 tensor and the rest that it leaves out, (value, residue); other values as
    they are."""

    def one(a: Any) -> Any:
        if not isinstance(a, np.ndarray):
            return a
        if a.dtype != np.longdouble:
            return torch.from_numpy(a.copy())
        with np.errstate(all="ignore"):
            near = a.astype(np.float64)
            rest = np.where(np.isfinite(near), (a - near).astype(np.float64), 0.0)
        return torch.from_numpy(near.reshape(a.shape)), torch.from_numpy(rest.reshape(a.shape))

    return pytree.tree_map(one, value)
