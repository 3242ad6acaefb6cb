"""What a lowering works with: handles of values that read like arithmetic, and the table of lowerings.

A lowering takes `(c: Ctx, *args, **kwargs)` in the order of the operator's schema, defaults filled in:
tensors as `T`, everything else as the framework's own Python values. It emits primitives and returns a `T`,
or a tuple of them for several outputs. `Unlowered` says that this use of the operator stays with the
framework, and why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from fusebound.capture.encode import dtype_name, torch_dtype
from fusebound.ir.builder import Builder
from fusebound.ir.graph import Value

Number = float | int | bool
Lowering = Callable[..., Any]
LOWERINGS: dict[str, Lowering] = {}
NUMBERS: set[str] = set()
"""Operators whose lowerings take numbers of the run, as `T` of no axes."""


class Unlowered(Exception):
    """This use of an operator stays with the framework. `code` is F6xx."""

    def __init__(self, message: str, code: str = "F601") -> None:
        super().__init__(message)
        self.code = code


def lowering(*targets: str, numbers: bool = False) -> Callable[[Lowering], Lowering]:
    """Register a function as the lowering of operators such as `aten.add.Tensor`, whose numbers may be known only at
    run time if it says so."""

    def register(fn: Lowering) -> Lowering:
        for t in targets:
            LOWERINGS[t] = fn
        NUMBERS.update(targets if numbers else ())
        return fn

    return register


@dataclass(frozen=True, slots=True)
class T:
    """A value under construction. Arithmetic operators emit primitives in the value's own type."""

    id: str
    c: Ctx

    @property
    def value(self) -> Value:
        return self.c.builder.values[self.id]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape  # type: ignore[return-value]  # operands of a lowering have static shapes

    @property
    def dtype(self) -> torch.dtype:
        return torch_dtype(self.value.dtype)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def is_number(self) -> bool:
        """Whether this is a Python number, which promotes no type, read from a tensor at run time."""
        return self.value.scalar

    def __add__(self, other: T | Number) -> T:
        return self.c("add", self, other)

    def __radd__(self, other: Number) -> T:
        return self.c("add", other, self)

    def __sub__(self, other: T | Number) -> T:
        return self.c("sub", self, other)

    def __rsub__(self, other: Number) -> T:
        return self.c("sub", other, self)

    def __mul__(self, other: T | Number) -> T:
        return self.c("mul", self, other)

    def __rmul__(self, other: Number) -> T:
        return self.c("mul", other, self)

    def __truediv__(self, other: T | Number) -> T:
        return self.c("div", self, other)

    def __rtruediv__(self, other: Number) -> T:
        return self.c("div", other, self)

    def __neg__(self) -> T:
        return self.c("neg", self)

    def __lt__(self, other: T | Number) -> T:
        return self.c("lt", self, other)

    def __le__(self, other: T | Number) -> T:
        return self.c("le", self, other)

    def __gt__(self, other: T | Number) -> T:
        return self.c("gt", self, other)

    def __ge__(self, other: T | Number) -> T:
        return self.c("ge", self, other)


@dataclass(frozen=True, slots=True)
class Ctx:
    """Emits the primitives of one user operator; `outs` are the values that the framework would return."""

    builder: Builder
    outs: tuple[Value, ...]

    @property
    def out(self) -> Value:
        return self.outs[0]

    @property
    def out_dtype(self) -> torch.dtype:
        return torch_dtype(self.outs[0].dtype)

    def __call__(self, op: str, *operands: T | Number) -> T:
        """Emit a primitive; numbers become constants of the tensor operands' type."""
        kinds = [o.dtype for o in operands if isinstance(o, T)]
        if op == "where":
            kinds = [o.dtype for o in operands[1:] if isinstance(o, T)]
        ids = [o.id if isinstance(o, T) else self.const(o, kinds[0]).id for o in operands]
        return T(self.builder.emit(op, *ids), self)

    def const(self, value: Number, dtype: torch.dtype) -> T:
        """A 0-d constant, of the Python kind that the type holds and rounded to the type that eager computes in: a
        half-precision one is rounded where its kernel rounds (`kept_roundings`)."""
        if dtype.is_floating_point:
            value = torch.tensor(value, dtype=wide_type(dtype), device="cpu").item()
        elif dtype == torch.bool:
            value = bool(value)
        else:
            value = int(value)
        return T(self.builder.const(value, dtype_name(dtype)), self)

    def as_type(self, x: T | Number, dtype: torch.dtype) -> T:
        """A tensor converted, or a number as a 0-d constant."""
        return self.cast(x, dtype) if isinstance(x, T) else self.const(x, dtype)

    def checked(self, x: T | Number, dtype: torch.dtype) -> T:
        """As `as_type`, where eager converts the number by itself and raises if it is beyond the type."""
        if not isinstance(x, T) or not x.is_number or dtype == torch.float64:
            return self.as_type(x, dtype)
        if dtype != torch.float32:
            raise Unlowered(f"a number known only at run time, as {dtype_name(dtype)}", "F602")
        return self.cast(self("fits_float32", x), dtype)

    def unrounded(self, value: Number, dtype: torch.dtype) -> T:
        """A 0-d constant of a floating type with all the digits of the Python number, for the exponent of `pow`: any
        other reader rounds it."""
        return T(self.builder.const(float(value), dtype_name(dtype)), self)

    def full(self, value: Number, shape: Sequence[int], dtype: torch.dtype) -> T:
        return self.expand(self.const(value, dtype), shape)

    def iota(
        self, shape: Sequence[int], dim: int, dtype: torch.dtype, start: Number = 0, step: Number = 1
    ) -> T:
        """`start + step·i` along `dim`."""
        id = self.builder.emit("iota", shape=shape, dtype=dtype_name(dtype), dim=dim, start=start, step=step)
        return T(id, self)

    def random(self, shape: Sequence[int], count: int) -> list[T]:
        """`count` words (int32) of the next draw's random block, for every element of a shape."""
        if not self.builder.draws_by_counter:
            raise Unlowered("random numbers beside a branch that draws some", "F606")
        if not prod(shape):
            raise Unlowered("random numbers for no element", "F606")
        return [T(id, self) for id in self.builder.random(shape, count)]

    # -- element types

    def cast(self, x: T, dtype: torch.dtype, *, user: bool = False) -> T:
        """Convert; a conversion to the same type is dropped unless the user wrote it."""
        if x.dtype == dtype and not user:
            return x
        return T(self.builder.emit("cast", x.id, dtype=dtype_name(dtype), user=user), self)

    def copy(self, x: T) -> T:
        """A new tensor with the same elements: a conversion to the type that it has."""
        return T(self.builder.emit("cast", x.id, dtype=x.value.dtype, user=False), self)

    def wide(self, x: T) -> T:
        """The type that eager computes in: float32 for bfloat16 and float16, else unchanged."""
        return self.cast(x, wide_type(x.dtype))

    # -- moves

    def reshape(self, x: T, shape: Sequence[int]) -> T:
        shape = tuple(shape)
        return x if shape == x.shape else T(self.builder.emit("reshape", x.id, shape=shape), self)

    def expand(self, x: T, shape: Sequence[int]) -> T:
        shape = tuple(shape)
        return x if shape == x.shape else T(self.builder.emit("expand", x.id, shape=shape), self)

    def permute(self, x: T, perm: Sequence[int]) -> T:
        perm = tuple(perm)
        return x if perm == tuple(range(x.rank)) else T(self.builder.emit("permute", x.id, perm=perm), self)

    def slice(self, x: T, dim: int, start: int, size: int, step: int = 1) -> T:
        """`size` elements of `dim` from `start`, every `step`-th."""
        if start == 0 and step == 1 and size == x.shape[dim]:
            return x
        shape = (*x.shape[:dim], size, *x.shape[dim + 1 :])
        return T(self.builder.emit("slice", x.id, shape=shape, dim=dim, start=start, step=step), self)

    def cat(self, xs: Sequence[T], dim: int) -> T:
        if len(xs) == 1:
            return xs[0]
        return T(self.builder.emit("cat", *(x.id for x in xs), dim=dim), self)

    def unsqueeze(self, x: T, dim: int) -> T:
        """Insert an axis of size 1 before axis `dim` (0 … rank)."""
        return self.reshape(x, (*x.shape[:dim], 1, *x.shape[dim:]))

    # -- reductions

    def reduce(
        self, op: str, x: T, dims: Sequence[int], *, keep: bool = False, dtype: torch.dtype | None = None
    ) -> T:
        """Reduce over `dims` (non-negative); a 0-d tensor counts as one element. A sum may end in a wider type."""
        if x.rank == 0:
            x, kept = self.reshape(x, (1,)), ()
            dims = (0,)
        else:
            kept = tuple(1 if i in dims else n for i, n in enumerate(x.shape))
        name = "" if dtype is None else dtype_name(dtype)
        out = T(self.builder.emit(op, x.id, axes=tuple(sorted(dims)), dtype=name), self)
        return self.reshape(out, kept) if keep else out

    def mean(self, x: T, dims: Sequence[int], *, keep: bool = False) -> T:
        n = prod(x.shape[d] for d in dims) if x.rank else 1
        return self.reduce("sum", x, dims, keep=keep) / float(n)

    def where(self, condition: T, a: T | Number, b: T | Number) -> T:
        return self("where", condition, a, b)

    def clamp(self, x: T, lo: Number | None, hi: Number | None) -> T:
        """NaN passes through, and x keeps its sign where it is a zero, as a bound may be; a bound that is NaN
        is every result."""
        if any(b is not None and math.isnan(b) for b in (lo, hi)):
            return self.full(math.nan, x.shape, x.dtype)
        if lo is not None:
            x = self("clamp_min", x, lo)
        return x if hi is None else self("clamp_max", x, hi)


def wide_type(dtype: torch.dtype) -> torch.dtype:
    """float32 for the half-precision types, else the type itself."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def axis(dim: int, rank: int) -> int:
    """A non-negative axis; a 0-d tensor has the one axis 0."""
    return dim % max(rank, 1)


def axes(dims: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Non-negative axes, sorted; None and an empty list mean all."""
    if isinstance(dims, int):
        dims = (dims,)
    return tuple(sorted({axis(d, rank) for d in dims})) if dims else tuple(range(rank))
