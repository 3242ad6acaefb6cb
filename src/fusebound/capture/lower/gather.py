"""Reads at places that data decide."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fusebound.capture.lower.context import Ctx, T, Unlowered, axis, lowering


def wrapped(c: Ctx, index: T, size: int) -> T:
    """Negative places count from the end, as in indexing."""
    return c.where(index < 0, index + size, index)


def _take(c: Ctx, op: str, x: T, index: T, dim: int) -> T:
    if index.dtype not in (torch.int64, torch.int32):
        raise Unlowered("an index that is no integer")
    return T(c.builder.emit(op, x.id, index.id, dim=dim), c)


@lowering("aten.embedding.default")
def embedding(c: Ctx, weight: T, index: T, *options: object) -> T:
    return _take(c, "index_select", weight, index, 0)


@lowering("aten.index_select.default")
def index_select(c: Ctx, x: T, dim: int, index: T) -> T:
    if x.rank == 0 or index.rank != 1:
        raise Unlowered("index_select of a 0-d tensor")
    return _take(c, "index_select", x, index, axis(dim, x.rank))


@lowering("aten.gather.default")
def gather(c: Ctx, x: T, dim: int, index: T, sparse_grad: bool = False) -> T:
    if x.rank == 0 or index.rank == 0:
        raise Unlowered("gather from a 0-d tensor")
    return _take(c, "gather", x, index, axis(dim, x.rank))


@lowering("aten.take_along_dim.default")
def take_along_dim(c: Ctx, x: T, index: T, dim: int | None = None) -> T:
    """Eager takes an index modulo the axis, so that none is out of range."""
    if dim is None or x.rank != index.rank:
        raise Unlowered("take_along_dim over the flattened tensor")
    dim = axis(dim, x.rank)
    shape = torch.broadcast_shapes(
        (*x.shape[:dim], 1, *x.shape[dim + 1 :]), (*index.shape[:dim], 1, *index.shape[dim + 1 :])
    )
    lead, tail = tuple(shape[:dim]), tuple(shape[dim + 1 :])
    index = c.expand(c("rem", index, x.shape[dim]), (*lead, index.shape[dim], *tail))
    return _take(c, "gather", c.expand(x, (*lead, x.shape[dim], *tail)), index, dim)


@lowering("aten.index.Tensor")
def index(c: Ctx, x: T, indices: Sequence[T | None]) -> T:
    """One index tensor among full slices; masks and several tensors stay with the framework."""
    found = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(found) != 1:
        raise Unlowered("indexing by several tensors")
    dim, places = found[0]
    if places.dtype in (torch.bool, torch.uint8):
        raise Unlowered("indexing by a mask", "F602")
    return _take(c, "index_select", x, wrapped(c, places, x.shape[dim]), dim)


@lowering("aten.index_put.default")
def index_put(c: Ctx, x: T, indices: Sequence[T | None], values: T, accumulate: bool = False) -> T:
    """`x[mask] = number` over leading axes; every other form writes at places that data decide."""
    mask = indices[0] if len(indices) == 1 else None
    if mask is None or mask.dtype != torch.bool or accumulate or values.numel != 1:
        raise Unlowered("writes at places that data decide")
    mask = c.reshape(mask, (*mask.shape, *(1,) * (x.rank - mask.rank)))
    return c.where(mask, c.reshape(c.cast(values, x.dtype), ()), x)
