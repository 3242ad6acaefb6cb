"""Evaluates a training-IR graph with every floating value in float64 (see `oracle` for the meaning)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils import _pytree as pytree

from fusebound.capture.draws import argument, switched_off
from fusebound.verify.exact import adds_exactly, discontinuous, rounds, selects
from fusebound.verify.extrema import IEEE
from fusebound.verify.placed import PLACED
from fusebound.verify.remainders import remainder, remainder_of
from fusebound.verify.seen import number_as, seen_as, user_dtype

_REPLACED = {**IEEE, **PLACED}
_CASTS = frozenset(("aten::to", "aten::_to_copy", "aten::type_as", "prims::convert_element_type"))
_COPYING_CASTS = frozenset(("aten::_to_copy", "prims::convert_element_type"))
_CHECKS_OF_TYPES = frozenset(("aten::_assert_tensor_metadata",))
_DROPOUTS = frozenset(("dropout", "feature_dropout"))
_ALPHA_DROPOUTS = frozenset(("alpha_dropout", "feature_alpha_dropout"))
_ALPHA = 1.7580993408473766
"""SELU's scale times its alpha: what alpha dropout puts for an element is its negative (ATen/native/Dropout.cpp)."""
_WRAPPERS = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}
"""Operators that only set a mode around a subgraph: how many arguments stand before the subgraph."""


MANY_ROUNDS = 10_000
"""Calls of one loop's body after which the oracle gives up."""


def widened(dtype: torch.dtype) -> torch.dtype:
    """The oracle's type for values of `dtype`."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def rounded(x: torch.Tensor, source: torch.dtype | None, to: torch.dtype) -> torch.Tensor:
    """`x`, which stands for a value of type `source`, rounded to `to` where that is narrower; still wide. An integer
    type truncates what is stored: there `x` is rounded to `source`."""
    if to.is_complex:
        return x
    if not to.is_floating_point:
        return x.to(source).to(torch.float64) if x.is_floating_point() and source is not None else x
    if x.is_floating_point() and source is not None and _holds(to, source):
        return x
    return x.to(to).to(torch.float64)


def _holds(to: torch.dtype, source: torch.dtype) -> bool:
    """Whether every finite value of `source` is a value of `to`."""
    if not source.is_floating_point:
        return False
    a, b = torch.finfo(to), torch.finfo(source)
    return a.eps <= b.eps and a.max >= b.max and a.smallest_normal <= b.smallest_normal


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(widened(x.dtype))


class WideInterpreter(torch.fx.Interpreter):
    """Runs a graph on inputs already promoted by `oracle.promote`; raises what the operators raise.

    With `jitter`, results that the user's type would round move by up to two of its ULP. `narrow` gets the names of the
    operators that had no wide form on these operands and ran in the user's types.
    """

    def __init__(
        self, module: torch.fx.GraphModule, jitter: torch.Generator | None, narrow: dict[str, None]
    ) -> None:
        super().__init__(module)
        self._jitter, self._narrow = jitter, narrow

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if isinstance(n.target, OpOverload):
            result = self._operator(n, n.target, args, kwargs)
            if self._jitter is not None:
                result = self._shaken(n, n.target, args, kwargs, result)
        elif isinstance(n.target, HigherOrderOperator):
            result = self._higher_order(n.target, args)
        else:
            result = super().run_node(n)
        return pytree.tree_map_only(torch.Tensor, _wide, result)

    def _shaken(self, n: torch.fx.Node, op: OpOverload, args: Any, kwargs: Any, result: Any) -> Any:
        """A result as another order of evaluation might have it: up to two ULP off where it is rounded, and the terms
        of a reduction so far off too, which changes much where they cancel."""
        if not rounds(op):
            return result
        once = torch.Tag.pointwise in op.tags
        if not once:
            if all(selects(args, r) for r in _floats(result)):
                return result
            once = adds_exactly(op, args, user_dtype(n.args[0]))
        if not once and torch.Tag.reduction in op.tags and (terms := user_dtype(n.args[0])) is not None:
            result = self._operator(n, op, (self._noisy(args[0], terms), *args[1:]), kwargs)
        if isinstance(result, tuple):
            return tuple(self._moved(r, v, once) for r, v in zip(result, n.meta["val"], strict=True))
        moved = self._moved(result, n.meta["val"], once)
        return args[0].copy_(moved) if op._schema.is_mutable else moved

    def _moved(self, result: Any, seen: Any, once: bool) -> Any:
        """One result moved, where the user's program has a floating tensor `seen`; with `once` only where its single
        rounding does anything."""
        if not isinstance(seen, torch.Tensor) or not seen.is_floating_point():
            return result
        wide = _wide(result)
        exact = wide.to(seen.dtype).to(wide.dtype) == wide
        noisy = self._noisy(wide, seen.dtype)
        return torch.where(exact, wide, noisy) if once else noisy

    def _noisy(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not dtype.is_floating_point:
            return x
        noise = torch.rand(x.shape, generator=self._jitter, dtype=torch.float64) * 2 - 1
        return x * (1 + 2 * torch.finfo(dtype).eps * noise)

    def _operator(self, n: torch.fx.Node, op: OpOverload, args: Any, kwargs: Any) -> Any:
        name = op._schema.name
        if name in _CHECKS_OF_TYPES:
            return None
        if name in _CASTS:
            return _cast(n, name, args, kwargs)
        if name == "aten::copy_":
            return args[0].copy_(_for_storage(n, args[1]))
        if name == "aten::view" and op._overloadname == "dtype":
            return self._in_user_types(n, op)
        if torch.Tag.nondeterministic_seeded in op.tags and not switched_off(op, args, kwargs):
            if (whole := name.removeprefix("aten::").removesuffix("_")) in _DROPOUTS:
                return _dropout(n, op, args)
            if whole in _ALPHA_DROPOUTS:
                return _alpha_dropout(n, op, args)
            return self._in_user_types(n, op)
        args, kwargs = _wide_dtype_argument(n, op, args, kwargs)
        if (functional := remainder_of(op)) is not None:
            result = remainder(functional, _as_seen(n, functional, args), args)
            return args[0].copy_(result) if op._schema.is_mutable else result
        if discontinuous(op):
            args = _as_seen(n, op, args)
        try:
            return _REPLACED.get(op, op)(*args, **kwargs)
        except RuntimeError:  # NotImplementedError among them; what the user's types raise too is raised here
            result = self._in_user_types(n, op)
            self._narrow[name] = None
            return result

    def _higher_order(self, op: HigherOrderOperator, args: Any) -> Any:
        """Subgraphs in float64: modes around one are transparent, control flow runs them by its own rules."""
        name = op.name()
        if name in _WRAPPERS:
            before = _WRAPPERS[name]
            return self._inner(args[before]).run(*args[before + 1 :])
        return op(*(self._body(a) if isinstance(a, torch.fx.GraphModule) else a for a in args))

    def _inner(self, module: torch.fx.GraphModule) -> WideInterpreter:
        return WideInterpreter(module, self._jitter, self._narrow)

    def _body(self, module: torch.fx.GraphModule) -> Callable[..., Any]:
        """A subgraph as a function; what converges in the user's type need not in float64, so its calls are counted."""
        calls = itertools.count(1)

        def run(*operands: Any) -> Any:
            if next(calls) > MANY_ROUNDS:
                raise RuntimeError(f"a loop of more than {MANY_ROUNDS} rounds in float64")
            return self._inner(module).run(*operands)

        return run

    def _in_user_types(self, n: torch.fx.Node, op: OpOverload) -> Any:
        """Run `op` on operands rounded to the user's types, for operators whose meaning depends on them."""
        narrow: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

        def demote(node: torch.fx.Node) -> Any:
            value, dtype = self.env[node], user_dtype(node)
            if not isinstance(value, torch.Tensor) or dtype is None or value.dtype == dtype:
                return value
            made = value.to(dtype)
            narrow[id(made)] = (made, value)
            return made

        kwargs: dict[str, Any] = torch.fx.map_arg(n.kwargs, demote)  # pyright: ignore[reportAssignmentType]
        if (
            any(a.name == "dtype" for a in op._schema.arguments)
            and argument(op, "dtype", n.args, n.kwargs) is None
        ):
            kwargs = {**kwargs, "dtype": user_dtype(n)}  # the default type is the oracle's
        result = op(*torch.fx.map_arg(n.args, demote), **kwargs)
        if op._schema.is_mutable:
            for made, value in narrow.values():
                value.copy_(made)

        def restore(x: torch.Tensor) -> torch.Tensor:
            return narrow[id(x)][1] if id(x) in narrow else x

        return pytree.tree_map_only(torch.Tensor, restore, result)


def _floats(results: Any) -> list[torch.Tensor]:
    return [r for r in pytree.tree_leaves(results) if isinstance(r, torch.Tensor) and r.is_floating_point()]


def _as_seen(n: torch.fx.Node, op: OpOverload, args: Any) -> Any:
    """The operands of a discontinuous operator as every program sees them (`seen`)."""

    def one(i: int, x: Any, types: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return [one(i, y, t) for y, t in zip(x, types, strict=True)]
        if isinstance(x, (int, float)):
            return number_as(x, types)
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or not types:
            return x
        seen = reduce(torch.Tensor.to, types, x).to(torch.float64)
        return x.copy_(seen) if i == 0 and op._schema.is_mutable else seen

    return [one(i, x, types) for i, (x, types) in enumerate(zip(args, seen_as(n, op), strict=True))]


def _cast(n: torch.fx.Node, name: str, args: Any, kwargs: Any) -> torch.Tensor:
    x, source, to = args[0], user_dtype(n.args[0]), user_dtype(n)
    if to is None or to.is_complex or not isinstance(x, torch.Tensor):
        return x
    result = rounded(x, source, to)
    result = result if to.is_floating_point else result.to(to)
    layout = kwargs.get("memory_format") or torch.preserve_format
    if result is x and (source != to or name in _COPYING_CASTS or kwargs.get("copy")):
        return x.clone(memory_format=layout)
    return result if layout is torch.preserve_format else result.contiguous(memory_format=layout)


def _for_storage(n: torch.fx.Node, value: torch.Tensor) -> torch.Tensor:
    """A value that the user writes into a tensor of a narrower type is rounded to it."""
    to = user_dtype(n)
    return value if to is None else rounded(value, user_dtype(n.args[1]), to)


def _wide_dtype_argument(n: torch.fx.Node, op: OpOverload, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments with `dtype=` widened; a reduction that converts its operand first rounds it as asked."""
    at = next((i for i, a in enumerate(op._schema.arguments) if a.name == "dtype"), None)
    if at is None:
        return args, kwargs
    dtype = kwargs.get("dtype", args[at] if at < len(args) else None)
    if not isinstance(dtype, torch.dtype) or widened(dtype) == dtype:
        return args, kwargs
    args, kwargs = list(args), dict(kwargs)
    if at < len(args):
        args[at] = widened(dtype)
    else:
        kwargs["dtype"] = widened(dtype)
    if n.args and user_dtype(n.args[0]) is not None and not _is_factory(op):
        args[0] = rounded(args[0], user_dtype(n.args[0]), dtype)
    return tuple(args), kwargs


def _is_factory(op: OpOverload) -> bool:
    name = op._schema.name.removeprefix("aten::")
    return name.endswith("_like") or name.startswith("new_")


def _dropout(n: torch.fx.Node, op: OpOverload, args: Any) -> torch.Tensor:
    """Dropout with the mask that the user's type draws, applied in float64."""
    x, dtype = args[0], user_dtype(n.args[0])
    ones = torch.ones_like(x, dtype=dtype)
    scale = op(ones, *args[1:]).to(torch.float64)
    return x.mul_(scale) if op._schema.is_mutable else x * scale


def _alpha_dropout(n: torch.fx.Node, op: OpOverload, args: Any) -> torch.Tensor:
    """Alpha dropout with the mask that the user's type draws, applied in float64: an element is kept, or -α put for it,
    and the affine map that restores mean and variance follows.

    Of zeros the operator makes two numbers, which lie α·a apart.
    """
    x, p = args[0], args[1]
    zeros = torch.zeros_like(x, dtype=user_dtype(n.args[0]))
    drawn = op(zeros, *args[1:]).to(torch.float64)
    if p == 1:
        result = x * drawn
    else:
        a = 1 / math.sqrt((_ALPHA**2 * p + 1) * (1 - p))
        kept = (drawn > _ALPHA * a * (p - 0.5)).to(torch.float64)
        result = x * (kept * a) + _ALPHA * a * (kept - 1 + p)
    return x.copy_(result) if op._schema.is_mutable else result
