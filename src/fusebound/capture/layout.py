"""The strides that eager's element-wise loops give a result that they allocate (ATen's TensorIterator).

They follow the operands' memory: axes are ordered by the operands' strides, the first operand's first, and the result
is dense in that order. Source: `TensorIteratorBase::build`, aten/src/ATen/TensorIterator.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fusebound.capture.overlap import extent, folds


def iterated(shape: Sequence[int], operands: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Strides of a result of `shape`, to which the operands are broadcast."""
    if all(t.shape == torch.Size(shape) for t in operands):
        first = operands[0].stride()
        if not all(t.is_contiguous() for t in operands) and all(
            is_dense(t) and t.stride() == first for t in operands
        ):
            return first
    strides = [_broadcast(t, shape) for t in operands]
    order = list(reversed(range(len(shape))))
    for i in range(1, len(order)):
        place = i
        for j in range(i - 1, -1, -1):
            match _compare(order[j], order[place], shape, strides):
                case 1:
                    order[j], order[place] = order[place], order[j]
                    place = j
                case -1:
                    break
                case _:
                    pass
    return _dense(shape, order)


def indexed(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> tuple[int, ...]:
    """Strides of `x[indices]` (integers; None takes a whole axis): a loop over what is left of x and the indices.

    Source: `AdvancedIndex`, aten/src/ATen/native/TensorAdvancedIndexing.cpp.
    """
    padded = [*indices, *[None] * (x.dim() - len(indices))]
    at = [i for i, t in enumerate(padded) if t is not None]
    if at != list(range(at[0], at[-1] + 1)):
        x = x.permute(at + [i for i in range(x.dim()) if i not in at])
        at = list(range(len(at)))
    given = torch.broadcast_tensors(*[t for t in padded if t is not None])
    first, last, axes = at[0], at[-1] + 1, given[0].dim()
    shape = (*x.shape[:first], *given[0].shape, *x.shape[last:])
    rest = x.as_strided(shape, (*x.stride()[:first], *[0] * axes, *x.stride()[last:]))
    lead, trail = [1] * first, [1] * (len(shape) - first - axes)
    return iterated(shape, [rest, *(t.reshape([*lead, *t.shape, *trail]) for t in given)])


def is_dense(t: torch.Tensor) -> bool:
    """Whether the tensor is all of the memory that it spans: no part of another."""
    low, high = extent(t)
    return not folds(t) and high - low == t.numel() * t.element_size()


def _broadcast(t: torch.Tensor, shape: Sequence[int]) -> list[int]:
    """The operand's strides along the result's axes, 0 where it is repeated."""
    lead = len(shape) - t.dim()
    own = [0 if n == 1 and m != 1 else s for n, s, m in zip(t.shape, t.stride(), shape[lead:], strict=True)]
    return [0] * lead + own


def _compare(a: int, b: int, shape: Sequence[int], strides: Sequence[Sequence[int]]) -> int:
    """-1 where axis `a` lies within axis `b` (smaller strides), 1 the other way round, 0 where nothing says."""
    for s in strides:
        if s[a] == 0 or s[b] == 0:
            continue
        if s[a] != s[b]:
            return -1 if s[a] < s[b] else 1
        if shape[a] > shape[b]:
            return 1
    return 0


def _dense(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides of memory without gaps, its axes from the innermost outwards."""
    strides, step = [0] * len(shape), 1
    for axis in order:
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)
