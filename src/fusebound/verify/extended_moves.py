"""Core operators that move numbers without computing any, on numpy arrays: name, or name.overload → function of the
operator's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

Wide = np.ndarray[Any, Any]


def axes_of(x: Wide, dim: Any) -> tuple[int, ...]:
    """The axes that `dim` names, from the front: all for None and for an empty list, none of a single number."""
    if x.ndim == 0 or dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return tuple(range(x.ndim))
    return tuple(d % x.ndim for d in (dim if isinstance(dim, (list, tuple)) else (dim,)))


def _span(x: Wide, dim: int, start: Any, end: Any, step: int) -> tuple[slice, ...]:
    index = [slice(None)] * x.ndim
    index[dim] = slice(start, None if end is not None and end >= x.shape[dim] else end, step)
    return tuple(index)


def _slice(x: Wide, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Wide:
    return x[_span(x, dim, start, end, step)]


def _slice_scatter(
    x: Wide, source: Wide, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Wide:
    made = x.copy()
    made[_span(x, dim, start, end, step)] = source
    return made


def _select_scatter(x: Wide, source: Wide, dim: int, index: int) -> Wide:
    made = x.copy()
    np.moveaxis(made, dim, 0)[index] = source
    return made


def _split(x: Wide, sizes: Sequence[int], dim: int = 0) -> list[Wide]:
    return [_slice(x, dim, a, b) for a, b in pairwise((0, *accumulate(sizes)))]


def _squeeze(x: Wide, dims: Any = None) -> Wide:
    return x.squeeze(tuple(a for a in axes_of(x, dims) if x.shape[a] == 1))


def _expand(x: Wide, shape: Sequence[int], *, implicit: bool = False) -> Wide:
    lead = len(shape) - x.ndim
    full = [x.shape[i - lead] if n == -1 else n for i, n in enumerate(shape)]
    return np.broadcast_to(x, full)


def _permute(x: Wide, dims: Sequence[int]) -> Wide:
    return x.transpose(tuple(d % x.ndim for d in dims))


def _diagonal(x: Wide, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Wide:
    return np.diagonal(x, offset, dim1, dim2)


def _pad(x: Wide, pad: Sequence[int], value: Any = 0) -> Wide:
    """`pad` has (before, after) of the last axis first; what is negative is cut off."""
    sides = [(0, 0)] * (x.ndim - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    kept = x[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(sides, x.shape, strict=True))]
    return np.pad(kept, [(max(a, 0), max(b, 0)) for a, b in sides], constant_values=value)


def _at(indices: Sequence[Any]) -> tuple[Any, ...]:
    """An index of numpy; one of several tensors with gaps between them puts its axes first in both."""
    return tuple(slice(None) if i is None else i for i in indices)


def _written(x: Wide, at: Any, values: Any) -> Wide:
    """`x` with values put at an index. Raises NotImplementedError for several at one place: it may keep any of them."""
    places = np.arange(x.size).reshape(x.shape)[at]
    if len(np.unique(places)) < places.size:
        raise NotImplementedError("several values for one element")
    made = x.copy()
    made[at] = values
    return made


def _added(x: Wide, at: Any, values: Wide) -> Wide:
    made = x.copy()
    np.add.at(made, at, values)
    return made


def _index_put(x: Wide, indices: Sequence[Any], values: Wide, accumulate: bool = False) -> Wide:
    return (_added if accumulate else _written)(x, _at(indices), values)


def _along(index: Wide, dim: int) -> tuple[Wide, ...]:
    at = list(np.indices(index.shape))
    at[dim] = index
    return tuple(at)


def _gather(x: Wide, dim: int, index: Wide, *, sparse_grad: bool = False) -> Wide:
    return x[_along(index, dim)]


def _scatter(x: Wide, dim: int, index: Wide, source: Any) -> Wide:
    values = source[tuple(map(slice, index.shape))] if np.ndim(source) else source
    return _written(x, _along(index, dim), values)


def _scatter_add(x: Wide, dim: int, index: Wide, source: Wide) -> Wide:
    return _added(x, _along(index, dim), source[tuple(map(slice, index.shape))])


MOVES: dict[str, Callable[..., Any]] = {
    "sym_size": lambda x, dim: x.shape[dim],
    "clone": lambda x: x.copy(),
    "copy": lambda x, y, non_blocking=False: np.broadcast_to(y, x.shape),
    "detach": lambda x: x,
    "alias": lambda x: x,
    "view": lambda x, shape: x.reshape(shape),
    "reshape": lambda x, shape: x.reshape(shape),
    "unsqueeze": np.expand_dims,
    "squeeze": _squeeze,
    "expand": _expand,
    "repeat": np.tile,
    "permute": _permute,
    "diagonal": _diagonal,
    "slice": _slice,
    "slice_scatter": _slice_scatter,
    "select": lambda x, dim, index: np.take(x, index, axis=dim),
    "select_scatter": _select_scatter,
    "split_with_sizes": _split,
    "cat": lambda xs, dim=0: np.concatenate(xs, axis=dim),
    "constant_pad_nd": _pad,
    "flip": lambda x, dims: np.flip(x, tuple(dims)),
    "index": lambda x, indices: x[_at(indices)],
    "index_put": _index_put,
    "index_select": lambda x, dim, index: np.take(x, index, axis=dim),
    "gather": _gather,
    "scatter.src": _scatter,
    "scatter.value": _scatter,
    "scatter_add": _scatter_add,
    "embedding": lambda w, index, *rest: w[index],
}
