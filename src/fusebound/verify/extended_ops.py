"""Core operators on numpy long doubles: name, or name.overload → function of the operator's arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from fusebound.analysis import extrema
from fusebound.verify.extended_moves import MOVES, Wide, axes_of

L = np.longdouble


def rounded(x: Wide, to: torch.dtype) -> Wide:
    """The nearest values of a floating type, still in long double."""
    if to in (torch.float64, torch.float32):
        return x.astype(np.float64 if to == torch.float64 else np.float32).astype(L)
    narrow = torch.from_numpy(np.asarray(x, dtype=np.float64)).to(to)
    return narrow.to(torch.float64).numpy().astype(L)


def converted(x: Wide, source: torch.dtype, to: torch.dtype) -> Wide:
    """Rounded to the narrower type that the user asks for; unchanged if `to` holds every value of
    `source`."""
    wider = source.is_floating_point and to.itemsize >= source.itemsize
    if wider and torch.finfo(to).eps <= torch.finfo(source).eps:
        return x.astype(L)
    return rounded(x, to)


def _sum(x: Wide, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Wide:
    return x.sum(axis=axes_of(x, dim), keepdims=keepdim, dtype=L if _is_float(x) else np.int64)


def _mean(x: Wide, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Wide:
    return x.astype(L).mean(axis=axes_of(x, dim), keepdims=keepdim)


def _var(x: Wide, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Wide:
    axes = axes_of(x, dim)
    count = np.prod([x.shape[a] for a in axes])
    centred = x - x.mean(axis=axes, keepdims=True)
    degrees = L(max(count - (1 if correction is None else correction), 0))
    return (centred * centred).sum(axis=axes, keepdims=keepdim) / degrees


def _var_mean(x: Wide, dim: Any = None, *, correction: Any = 1, keepdim: bool = False) -> tuple[Wide, Wide]:
    mean = _mean(x, dim, keepdim)
    return _var(x, dim, correction=correction, keepdim=keepdim), mean if x.size == mean.size else _running(
        mean
    )


def _running(mean: Wide) -> Wide:
    """A mean that is updated value by value: NaN for infinities (`placed`)."""
    return mean - (mean - mean)


def _is_float(x: Any) -> bool:
    return np.asarray(x).dtype == L


def _number(x: Any) -> Any:
    """A Python float as a long double; numpy would take it for float64."""
    return L(x) if isinstance(x, float) else x


def _binary(op: Callable[..., Any]) -> Callable[..., Any]:
    def run(a: Any, b: Any, *, alpha: Any = None) -> Any:
        b = _number(b)
        return op(_number(a), b if alpha is None else b * _number(alpha))

    return run


def _div(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    a, b = np.asarray(_number(a)).astype(L), np.asarray(_number(b)).astype(L)
    match rounding_mode:
        case "floor":
            return _floor_div(a, b)
        case "trunc":
            return np.trunc(a / b)
        case _:
            return a / b


def _floor_div(a: Wide, b: Wide) -> Wide:
    """⌊a / b⌋ from the exact remainder, a zero with the sign of a / b; a / b where b is zero (the framework's)."""
    ratio, rest = a / b, np.fmod(a, b)
    whole = np.rint((a - rest) / b) - _crosses(rest, b)
    return np.where(b == 0, ratio, np.where(whole == 0, np.copysign(L(0), ratio), whole))


def _unary(op: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: op(np.asarray(x).astype(L))


def _sigmoid(x: Wide) -> Wide:
    return 1 / (1 + np.exp(-x))


def _erf(x: Wide) -> Wide:
    """Series near zero, Lentz's continued fraction of erfc in the tails (Abramowitz and Stegun 7.1.6,
    7.1.14)."""
    a = np.minimum(np.abs(x), L(12))
    near = _erf_series(np.minimum(a, L(1)))
    return np.where(np.isnan(x), x, np.sign(x) * np.where(a < 1, near, 1 - _erfc_tail(a)))


def _erfc(x: Wide) -> Wide:
    a = np.minimum(np.abs(x), L(150))
    tail = np.where(a < 1, 1 - _erf_series(np.minimum(a, L(1))), _erfc_tail(a))
    return np.where(np.isnan(x), x, np.where(x < 0, 2 - tail, tail))


def _erf_series(a: Wide) -> Wide:
    term, total = a.copy(), a.copy()
    for n in range(1, 60):
        term = term * 2 * a * a / (2 * n + 1)
        total = total + term
    return total * np.exp(-a * a) * 2 / np.sqrt(L(_PI))


def _erfc_tail(a: Wide) -> Wide:
    a = np.maximum(a, L(1))
    fraction = np.zeros_like(a)
    for n in range(500, 0, -1):
        fraction = L(n) / 2 / (a + fraction)
    return np.exp(-a * a) / (a + fraction) / np.sqrt(L(_PI))


_PI = L("3.14159265358979323846264338327950288")


def _gelu(x: Wide, *, approximate: str = "none") -> Wide:
    if approximate == "tanh":
        return x / 2 * (1 + np.tanh(np.sqrt(2 / _PI) * (x + L("0.044715") * x**3)))
    root = np.sqrt(L(2))
    return x * np.where(x < 0, _erfc(-x / root) / 2, (1 + _erf(x / root)) / 2)


def _elu(x: Wide, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Wide:
    a, s, i = L(alpha), L(scale), L(input_scale)
    return np.where(x < 0, a * s * np.expm1(x * i), x * s)


def _clamp(x: Wide, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Wide:
    low, high = min if low is None else low, max if high is None else high
    x = x if low is None else _bounded(x, low, extrema.maximum, extrema.clamp_min)
    return x if high is None else _bounded(x, high, extrema.minimum, extrema.clamp_max)


def _bounded(x: Wide, bound: Any, extreme: Any, clamp: Any) -> Wide:
    """A number as bound leaves zeros alone, unless it is NaN; a tensor is an operand like the other."""
    if isinstance(bound, np.ndarray):
        return extreme(x, bound)
    return extreme(x, L(bound)) if bound != bound else clamp(x, _number(bound))


def _softmax(x: Wide, dim: int, half_to_float: bool = False) -> Wide:
    e = np.exp(x - x.max(axis=dim, keepdims=True))
    return e / e.sum(axis=dim, keepdims=True)


def _log_softmax(x: Wide, dim: int, half_to_float: bool = False) -> Wide:
    shifted = x - x.max(axis=dim, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=dim, keepdims=True))


def _layer_norm(x: Wide, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> tuple[Wide, Wide, Wide]:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    mean = x.mean(axis=axes, keepdims=True)
    rstd = 1 / np.sqrt(_var(x, axes, correction=0, keepdim=True) + L(eps))
    y = (x - mean) * rstd
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), _running(mean), rstd


def _group_norm(
    x: Wide, weight: Any, bias: Any, n: int, c: int, hw: int, group: int, eps: float
) -> tuple[Wide, Wide, Wide]:
    y, mean, rstd = _layer_norm(x.reshape(n, group, -1), [c // group * hw], None, None, eps)
    shape = (1, c) + (1,) * (x.ndim - 2)
    y = y.reshape(x.shape)
    y = y if weight is None else y * weight.reshape(shape)
    return (y if bias is None else y + bias.reshape(shape)), mean.reshape(n, group), rstd.reshape(n, group)


def _batch_norm(
    x: Wide, weight: Any, bias: Any, mean: Wide, var: Wide, momentum: float, eps: float
) -> tuple[Wide, Wide, Wide]:
    shape = (1, -1) + (1,) * (x.ndim - 2)
    y = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + L(eps))
    y = y if weight is None else y * weight.reshape(shape)
    empty = np.zeros(0, dtype=L)
    return (y if bias is None else y + bias.reshape(shape)), empty, empty


def _batch_norm_training(x: Wide, weight: Any, bias: Any, *rest: Any) -> tuple[Wide, ...]:
    """By the batch's own statistics, or by running ones if not `training`; running ones are returned as updated."""
    *running, training, momentum, eps = rest
    if not training:
        old_mean, old_var = running
        return (*_batch_norm(x, weight, bias, old_mean, old_var, momentum, eps), old_mean, old_var)
    axes = (0, *range(2, x.ndim))
    mean, var = _mean(x, axes), _var(x, axes, correction=0)
    y, *_ = _batch_norm(x, weight, bias, mean, var, momentum, eps)
    batch = (mean, _var(x, axes)) if running else ()
    kept = (old + L(momentum) * (new - old) for old, new in zip(running, batch, strict=True))
    return (y, mean, 1 / np.sqrt(var + L(eps)), *kept)


def _vector_norm(x: Wide, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Wide:
    axes = axes_of(x, dim)
    if ord == 2:
        return np.sqrt((x * x).sum(axis=axes, keepdims=keepdim))
    if ord == 1:
        return np.abs(x).sum(axis=axes, keepdims=keepdim)
    if ord == float("inf"):
        return np.abs(x).max(axis=axes, keepdims=keepdim)
    if ord == float("-inf"):
        return np.abs(x).min(axis=axes, keepdims=keepdim)
    if ord == 0:
        return (x != 0).sum(axis=axes, keepdims=keepdim).astype(L)
    return np.power(np.power(np.abs(x), L(ord)).sum(axis=axes, keepdims=keepdim), 1 / L(ord))


def _foreach_norm(tensors: Sequence[Wide], ord: Any = 2, dtype: Any = None) -> list[Wide]:
    return [_vector_norm(x, ord) for x in tensors]


def _arg(op: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Wide, dim: int | None = None, keepdim: bool = False) -> Any:
        found = op(x, axis=dim)
        return np.expand_dims(found, dim) if keepdim and dim is not None else found

    return run


def _at_extreme(place: Callable[..., Any]) -> Callable[..., Any]:
    """The extreme along an axis and the place of the first one."""

    def run(x: Wide, dim: int, keepdim: bool = False) -> tuple[Wide, Wide]:
        if not x.ndim:
            return x, np.zeros((), np.int64)
        at = np.expand_dims(place(x, axis=dim), dim)
        found = np.take_along_axis(x, at, dim), at
        return found if keepdim else (found[0].squeeze(dim), at.squeeze(dim))

    return run


def _addmm(x: Wide, a: Wide, b: Wide, *, beta: Any = 1, alpha: Any = 1) -> Wide:
    product = _matmul(a, b) * _number(alpha)
    return product if beta == 0 else x * _number(beta) + product


def _matmul(a: Wide, b: Wide) -> Wide:
    if a.shape[-2] * a.shape[-1] * b.shape[-1] > 1 << 22:
        raise NotImplementedError("a product this large")
    return a @ b


def _remainder(a: Wide, b: Wide) -> Wide:
    """The exact remainder with the sign of b; a zero keeps the sign of a, as the framework's does."""
    rest = np.fmod(a, b)
    return np.where(_crosses(rest, b), rest + b, rest)


def _crosses(rest: Wide, b: Wide) -> Wide:
    """Whether a remainder is nonzero and of the other sign than the divisor."""
    return (rest != 0) & ((b < 0) != (rest < 0))


def _arange(*bounds: Any, dtype: Any = None) -> Wide:
    """`arange(end)`, `(start, end)` or `(start, end, step)`; eager counts the steps in float64."""
    start, end, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    return _number(start) + np.arange(math.ceil((end - start) / step)) * _number(step)


def _filled(size: Sequence[int], value: Any, *, dtype: Any = None) -> Wide:
    return np.full(tuple(size), _number(value))


_COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater}
_UNARY = """
    sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh floor ceil trunc sign isnan isinf
"""
_INVERSE = "asin acos atan asinh acosh atanh"

OPS: dict[str, Callable[..., Any]] = {
    **MOVES,
    **{name: _unary(getattr(np, name)) for name in _UNARY.split()},
    **{name: _unary(getattr(np, "arc" + name[1:])) for name in _INVERSE.split()},
    **{name: _binary(op) for name, op in _COMPARE.items()},
    "ge": _binary(np.greater_equal),
    "add": _binary(np.add),
    "sub": _binary(np.subtract),
    "rsub": _binary(lambda a, b: b - a),
    "mul": _binary(np.multiply),
    "pow": _binary(np.power),
    "maximum": _binary(extrema.maximum),
    "minimum": _binary(extrema.minimum),
    "atan2": _binary(np.arctan2),
    "fmod": _binary(np.fmod),
    "fmin": _binary(np.fmin),
    "fmax": _binary(np.fmax),
    "hypot": _binary(np.hypot),
    "copysign": _binary(np.copysign),
    "remainder": _binary(_remainder),
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_not": np.invert,
    "div": _div,
    "neg": np.negative,
    "abs": np.abs,
    "round": _unary(np.rint),
    "rsqrt": _unary(lambda x: 1 / np.sqrt(x)),
    "reciprocal": _unary(lambda x: 1 / x),
    "sigmoid": _unary(_sigmoid),
    "erf": _unary(_erf),
    "erfc": _unary(_erfc),
    "relu": lambda x: _clamp(x, 0),
    "gelu": _gelu,
    "elu": _elu,
    "leaky_relu": lambda x, slope=0.01: np.where(x > 0, x, x * L(slope)),
    "clamp": _clamp,
    "hardtanh": lambda x, low=-1, high=1: _clamp(x, low, high),
    "where": np.where,
    "sum": _sum,
    "mean": _mean,
    "var.correction": _var,
    "var_mean.correction": _var_mean,
    "prod.dim_int": lambda x, dim, keepdim=False, *, dtype=None: x.prod(axis=dim, keepdims=keepdim),
    "amax": lambda x, dim=None, keepdim=False: extrema.amax(x, axes_of(x, dim), keepdims=keepdim),
    "amin": lambda x, dim=None, keepdim=False: extrema.amin(x, axes_of(x, dim), keepdims=keepdim),
    "any": lambda x, dim=None, keepdim=False: np.any(x, axis=axes_of(x, dim), keepdims=keepdim),
    "argmax": _arg(np.argmax),
    "argmin": _arg(np.argmin),
    "max.dim": _at_extreme(np.argmax),
    "min.dim": _at_extreme(np.argmin),
    "cumprod": lambda x, dim, *, dtype=None: np.cumprod(x, axis=dim).reshape(x.shape),
    "cumsum": lambda x, dim, *, dtype=None: np.cumsum(x, axis=dim).reshape(x.shape),
    "linalg_vector_norm": _vector_norm,
    "_foreach_norm": _foreach_norm,
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_native_batch_norm_legit": _batch_norm_training,
    "_native_batch_norm_legit_functional": _batch_norm_training,
    "mm": _matmul,
    "bmm": _matmul,
    "addmm": _addmm,
    "_to_copy": lambda x: x,
    "empty": lambda size, *, dtype=None: np.zeros(tuple(size)),
    "empty_permuted": lambda size, order, *, dtype=None: np.zeros(tuple(size)),
    "arange": _arange,
    "full": _filled,
    "scalar_tensor": lambda value, *, dtype=None: np.asarray(_number(value)),
    "full_like": lambda x, value, *, dtype=None: np.full(x.shape, _number(value)),
}
