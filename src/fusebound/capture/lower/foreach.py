"""`torch._foreach_*`: the pointwise operator, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fusebound.capture.encode import words
from fusebound.capture.lower import arithmetic, move, pointwise, reduce
from fusebound.capture.lower.context import Ctx, Number, T, lowering

Operand = T | Number


def _each(c: Ctx, fn: Callable[..., T], *lists: Sequence[Operand] | Operand, **kwargs: Any) -> tuple[T, ...]:
    """Apply `fn` to the i-th elements; a single number or tensor serves every i."""
    out = []
    for i, value in enumerate(c.outs):
        one = Ctx(c.builder, (value,))
        out.append(fn(one, *(x[i] if isinstance(x, list | tuple) else x for x in lists), **kwargs))
    return tuple(out)


def _register(name: str, fn: Callable[..., T], *overloads: str) -> None:
    def lower(c: Ctx, *lists: Any, **kwargs: Any) -> tuple[T, ...]:
        return _each(c, fn, *lists, **kwargs)

    lowering(*(f"aten._foreach_{name}.{o}" for o in overloads))(lower)


_register("add", arithmetic.add, "List", "Scalar", "Tensor", "ScalarList")
_register("sub", arithmetic.sub, "List", "Scalar", "ScalarList")
_register("mul", arithmetic.mul, "List", "Scalar", "Tensor", "ScalarList")
_register("div", arithmetic.div, "List", "Scalar", "Tensor", "ScalarList")
_register("maximum", pointwise.clamp_min, "List", "Scalar", "ScalarList")
_register("minimum", pointwise.clamp_max, "List", "Scalar", "ScalarList")
_register("clamp_min", pointwise.clamp_min, "List", "Scalar", "ScalarList")
_register("clamp_max", pointwise.clamp_max, "List", "Scalar", "ScalarList")
_register("lerp", arithmetic.lerp, "List", "Scalar", "ScalarList")
_register("pow", arithmetic.pow_scalar, "Scalar", "ScalarList")
_register("pow", arithmetic.pow_tensor, "List")
_register("sigmoid", pointwise.unary("sigmoid"), "default")
_register("clone", move.clone, "default")
_register("norm", reduce.norm_all, "Scalar")
for _name in words("""
sqrt rsqrt neg abs exp log reciprocal expm1 log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh erf erfc sign
"""):
    _register(_name, pointwise.unary(_name), "default")
for _name in ("floor", "ceil", "round", "trunc"):
    _register(_name, pointwise.rounding(_name), "default")


def _register_addc(name: str, fn: Callable[..., T]) -> None:
    def lower(c: Ctx, x: Sequence[T], a: Sequence[T], b: Sequence[T], value: Any = 1) -> tuple[T, ...]:
        def one(c: Ctx, x: T, a: T, b: T, value: Number) -> T:
            return fn(c, x, a, b, value=value)

        return _each(c, one, x, a, b, value)

    lowering(f"aten._foreach_{name}.Scalar", f"aten._foreach_{name}.ScalarList")(lower)


_register_addc("addcmul", arithmetic.addcmul)
_register_addc("addcdiv", arithmetic.addcdiv)
