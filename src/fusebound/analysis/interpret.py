"""A numpy interpreter of primitives under three semantics: eager's roundings, a fused kernel's, and none.

All floating values are carried as float64 (long double for the reference of a float64 graph) and rounded to what
each semantics stores, so that overflow, subnormals and bfloat16 come out right without a type for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from math import erf, erfc
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fusebound.analysis import extrema, philox
from fusebound.analysis.access import integer, ints
from fusebound.analysis.group import in_order
from fusebound.analysis.numerics import HALF, kept_roundings, rounded_by_user
from fusebound.analysis.shrink import Shapes
from fusebound.ir.dtypes import DTYPES
from fusebound.ir.graph import Graph, Node
from fusebound.ir.ops import spec_of

Array = NDArray[Any]
Mode = Literal["eager", "fused", "exact"]


def evaluate(
    g: Graph, nodes: Collection[str], inputs: Mapping[str, Array], shapes: Shapes, mode: Mode
) -> dict[str, Array]:  # fmt: skip
    """Every value that `nodes` define, from arrays for the external inputs, under one semantics.

    "eager" rounds each result to its type; "fused" keeps floats in float32 (float64 for float64) and rounds
    only where `kept_roundings` says so; "exact" rounds nothing but what the user narrows. Raises KeyError for a
    primitive that has no meaning here.
    """
    values: dict[str, Array] = dict(inputs)
    kept = kept_roundings(g, frozenset(nodes)) if mode == "fused" else frozenset[str]()
    with np.errstate(all="ignore"):
        for n in in_order(g, nodes):
            operands = [values[v] for v in n.inputs]
            values[n.out] = _settle(g, n, _compute(g, n, operands, shapes, mode), mode, kept)
    return values


def rounded(x: Array, dtype: str) -> Array:
    """Floats rounded to the nearest value of a type, ties to even (to a half type by way of float32), others converted,
    as the framework does."""
    kind = DTYPES[dtype].kind
    if kind == "bool":
        return np.asarray(x).astype(bool)
    if kind != "float":
        return np.trunc(x).astype(dtype) if np.asarray(x).dtype.kind == "f" else np.asarray(x).astype(dtype)
    carrier = x if np.asarray(x).dtype.kind == "f" else np.asarray(x).astype(np.float64)
    narrow = carrier.astype(np.float32) if dtype in HALF else carrier
    stored = _to_bfloat16(narrow) if dtype == "bfloat16" else narrow.astype(dtype)
    return stored.astype(carrier.dtype)


def _to_bfloat16(x: Array) -> Array:
    bits = np.asarray(x, np.float32).view(np.uint32)
    up = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), np.float32(np.nan), up.view(np.float32))


def _settle(g: Graph, n: Node, x: Array, mode: Mode, kept: frozenset[str]) -> Array:
    """What is left of a result when the semantics has stored it."""
    dtype = g.values[n.out].dtype
    if DTYPES[dtype].kind != "float":
        return rounded(x, dtype)
    if mode == "eager" or n.out in kept or (mode == "exact" and rounded_by_user(g, n)):
        return rounded(x, dtype)
    if mode == "exact":
        return x if np.asarray(x).dtype.kind == "f" else np.asarray(x).astype(np.float64)
    if n.op == "const" and _is_exponent(g, n.out):
        return x
    return rounded(x, "float32" if dtype in HALF else dtype)


def _is_exponent(g: Graph, const: str) -> bool:
    """Whether only `pow` reads a constant, as its exponent: a kernel keeps all of its digits."""
    return all(n.op == "pow" and n.inputs[1] == const for n in g.consumers[const])


def _compute(g: Graph, n: Node, x: list[Array], shapes: Shapes, mode: Mode) -> Array:
    spec = spec_of(n.op)
    if spec is None:
        raise KeyError(n.op)
    if spec.cls == "reduce":
        return _reduce(g, n, x[0], mode)
    if spec.cls == "move":
        return _move(n, x, shapes[n.out])
    if spec.cls == "gather":
        return _gather(n, x)
    if n.op == "const":
        return np.asarray(n.attr("value"))
    if n.op == "iota":
        return _iota(n, shapes[n.out])
    if n.op == "random":
        return philox.words(int(x[0]), integer(n.attr("draw")), shapes[n.out])[integer(n.attr("word"))]
    if n.op == "cast":
        return x[0]
    if n.op == "where":
        return np.where(x[0].astype(bool), x[1], x[2])
    if DTYPES[g.values[n.inputs[0]].dtype].kind != "float" and n.op in _INTEGER:
        return _INTEGER[n.op](*x)
    return _FLOAT[n.op](*x)


def _reduce(g: Graph, n: Node, x: Array, mode: Mode) -> Array:
    axes = ints(n.attr("axes"))
    if n.op in ("sum", "prod"):
        ufunc = np.add if n.op == "sum" else np.multiply
        narrow = mode == "eager" and g.values[n.inputs[0]].dtype in (*HALF, "float32")
        return ufunc.reduce(x.astype(np.float32) if narrow else x, axis=axes).astype(x.dtype)
    if not all(x.shape[a] for a in axes):
        # An extremum of nothing, which the framework refuses alone: within softmax no element reads it.
        return np.zeros([d for a, d in enumerate(x.shape) if a not in axes], x.dtype)
    if n.op in ("argmax", "argmin"):
        moved = np.moveaxis(x, axes, range(-len(axes), 0))
        kept = moved.ndim - len(axes)
        flat = moved.reshape(*moved.shape[:kept], math.prod(moved.shape[kept:]))
        return (np.argmax if n.op == "argmax" else np.argmin)(flat, axis=-1)
    if n.op in ("amax", "amin"):
        return (extrema.amax if n.op == "amax" else extrema.amin)(x, axes)
    return (np.logical_or if n.op == "any" else np.logical_and).reduce(x, axis=axes)


def _move(n: Node, x: list[Array], shape: tuple[int, ...]) -> Array:
    match n.op:
        case "reshape":
            return x[0].reshape(shape)
        case "expand":
            return np.broadcast_to(x[0], shape)
        case "permute":
            return x[0].transpose(ints(n.attr("perm")))
        case "slice":
            dim, start, step = (integer(n.attr(k)) for k in ("dim", "start", "step"))
            return x[0][_cut(x[0].ndim, dim, start, shape[dim], step)]
        case "flip":
            return np.flip(x[0], ints(n.attr("dims")))
        case "cat":
            return np.concatenate(x, integer(n.attr("dim")))
        case "pad":
            return _pad(n, x[0], shape)
        case _:
            dim, start, step = (integer(n.attr(k)) for k in ("dim", "start", "step"))
            out = np.array(x[0])
            out[_cut(out.ndim, dim, start, x[1].shape[dim], step)] = x[1]
            return out


def _pad(n: Node, x: Array, shape: tuple[int, ...]) -> Array:
    """Padding may be negative: then it crops."""
    out = np.full(shape, n.attr("value"), x.dtype)
    lo = ints(n.attr("lo"))
    to = tuple(slice(max(a, 0), max(min(a + s, m), 0)) for a, s, m in zip(lo, x.shape, shape, strict=True))
    of = tuple(slice(max(-a, 0), max(min(s, m - a), 0)) for a, s, m in zip(lo, x.shape, shape, strict=True))
    out[to] = x[of]
    return out


def _cut(rank: int, dim: int, start: int, size: int, step: int) -> tuple[slice, ...]:
    return tuple(slice(start, start + size * step, step) if k == dim else slice(None) for k in range(rank))


def _gather(n: Node, x: list[Array]) -> Array:
    dim = integer(n.attr("dim"))
    if n.op == "index_select":
        return np.take(x[0], x[1], axis=dim)
    return np.take_along_axis(x[0], x[1], axis=dim)


def _iota(n: Node, shape: tuple[int, ...]) -> Array:
    dim, start, step = n.attr("dim"), n.attr("start"), n.attr("step")
    assert isinstance(dim, int) and isinstance(start, (int, float)) and isinstance(step, (int, float))
    line = start + step * np.arange(shape[dim] if shape else 1)
    tail = [1] * max(len(shape) - dim - 1, 0)
    return np.broadcast_to(line.reshape(-1, *tail), shape)


def _scalar(fn: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of math over an array."""
    each = np.frompyfunc(fn, 1, 1)
    return lambda x: np.asarray(each(x)).astype(np.asarray(x).dtype)


def _sign(x: Array) -> Array:
    return np.where(np.isnan(x), 0.0, np.sign(x))


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _none(x: Array) -> Array:
    return np.zeros(x.shape, bool)


def _all(x: Array) -> Array:
    return np.ones(x.shape, bool)


def _reciprocal(x: Array) -> Array:
    return 1.0 / x


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _trunc_div(a: Array, b: Array) -> Array:
    return np.trunc(a / b)


def _fma(a: Array, b: Array, c: Array) -> Array:
    """In the carrier a product of two float32 values is exact."""
    return a * b + c


def _integer_sign(x: Array) -> Array:
    """Numpy has none for bools, which are their own sign."""
    return x if x.dtype == bool else np.sign(x)


def _integer_pow(a: Array, b: Array) -> Array:
    return np.power(a.astype(np.float64), b)


_FLOAT: dict[str, Callable[..., Array]] = {
    "neg": np.negative, "abs": np.abs, "sign": _sign, "sqrt": np.sqrt, "reciprocal": _reciprocal,
    "rsqrt": _rsqrt, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log,
    "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
    "sigmoid": _sigmoid, "erf": _scalar(erf), "erfc": _scalar(erfc), "tan": np.tan, "sinh": np.sinh,
    "cosh": np.cosh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "trunc": np.trunc, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "add": np.add,
    "sub": np.subtract, "mul": np.multiply, "maximum": extrema.maximum, "minimum": extrema.minimum,
    "clamp_min": extrema.clamp_min, "clamp_max": extrema.clamp_max, "div": np.divide,
    "floor_div": np.floor_divide, "rem": np.mod, "fmod": np.fmod, "trunc_div": _trunc_div,
    "pow": np.power, "atan2": np.arctan2, "fma": _fma, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "probability": np.positive, "fits_float32": np.positive, "gt": np.greater,
    "ge": np.greater_equal, "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not,
}  # fmt: skip

_INTEGER: dict[str, Callable[..., Array]] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "shl": np.left_shift, "shr": np.right_shift, "sign": _integer_sign,
    "pow": _integer_pow, "isnan": _none,
    "isinf": _none, "isfinite": _all,
}  # fmt: skip
