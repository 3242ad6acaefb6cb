"""Output memory that is used again once nothing refers to it, so that large outputs never page-fault.

A slot keeps a base tensor and hands out `base.data`: a tensor with its own version counter and no view relation. The
slot is free when the storage's reference counts are what they were before it was handed out: whatever route the user
took (views, numpy, DLPack, autograd, a kept storage), a reference shows in one of the two counts.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

from fusebound import settings
from fusebound.runtime.private import empty_strided, use_count

SMALL = 1 << 20
"""Bytes below which the ordinary allocator reuses memory by itself, without page faults."""

Slot = tuple[torch.Tensor, torch.UntypedStorage, int, int, int, int]


@dataclass(slots=True)
class Usage:
    """Bytes that the pool holds, over all kinds of output, and its cap."""

    cap: int
    held: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reserve(self, nbytes: int) -> bool:
        with self.lock:
            if self.held + nbytes > self.cap:
                return False
            self.held += nbytes
            return True

    def release(self, nbytes: int) -> None:
        with self.lock:
            self.held -= nbytes


class _Shelf:
    """The slots of one shape, stride and type."""

    def __init__(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, usage: Usage
    ) -> None:
        self.shape, self.strides, self.dtype = shape, strides, dtype
        self.usage = usage
        self.slots: deque[Slot] = deque()

    def take(self) -> torch.Tensor:
        """A tensor of this kind that nobody else refers to; its contents are arbitrary."""
        for _ in range(len(self.slots)):
            try:
                slot = self.slots.popleft()
            except IndexError:
                break
            base, storage, cdata, address, nbytes, count = slot
            if use_count(cdata) != count or sys.getrefcount(storage) != _FREE:
                self.slots.append(slot)
                continue
            if storage.data_ptr() != address or storage.nbytes() != nbytes:
                self.usage.release(nbytes)
                continue
            out = base.data
            self.slots.append(slot)
            return out
        return self._fresh()

    def _fresh(self) -> torch.Tensor:
        base = empty_strided(self.shape, self.strides, self.dtype)
        storage = base.untyped_storage()
        nbytes = storage.nbytes()
        if not self.usage.reserve(nbytes):
            return base
        cdata = storage._cdata
        slot = (base, storage, cdata, storage.data_ptr(), nbytes, use_count(cdata))
        out = base.data
        self.slots.append(slot)
        return out

    def trim(self) -> int:
        """Forget the free slots; returns the bytes given back."""
        freed = 0
        for _ in range(len(self.slots)):
            slot = self.slots.popleft()
            storage = slot[1]
            if use_count(slot[2]) == slot[5] and sys.getrefcount(storage) == _FREE:
                freed += slot[4]
            else:
                self.slots.append(slot)
        self.usage.release(freed)
        return freed


def _free_count() -> int:
    """What `sys.getrefcount` says of a storage that only its slot and two locals hold, seen as `take` sees it."""
    base = empty_strided((1,), (1,), torch.float32)
    slots: deque[tuple[torch.Tensor, torch.UntypedStorage]] = deque([(base, base.untyped_storage())])
    slot = slots.popleft()
    _, storage = slot
    return sys.getrefcount(storage)


_FREE = _free_count()


class Pool:
    """All shelves. `take(...)` is thread-safe; blocks beyond the cap come from the ordinary allocator."""

    def __init__(self, cap_bytes: int) -> None:
        self.usage = Usage(cap_bytes)
        self._shelves: dict[tuple[Any, ...], _Shelf] = {}

    def allocator(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
    ) -> Callable[[], torch.Tensor]:
        """A function that returns an uninitialised tensor of this kind: pooled from 1 MB up, if the pool works."""
        if self.usage.cap == 0 or not _works() or prod(shape) * dtype.itemsize < SMALL:
            return lambda: empty_strided(shape, strides, dtype)
        plain, inferring = (self._shelf((shape, strides, dtype, mode)) for mode in (False, True))
        inference = torch.is_inference_mode_enabled
        return lambda: inferring.take() if inference() else plain.take()

    def _shelf(self, key: tuple[tuple[int, ...], tuple[int, ...], torch.dtype, bool]) -> _Shelf:
        """The shelf of one kind of tensor; tensors made in inference mode can never be others."""
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves.setdefault(key, _Shelf(*key[:3], self.usage))
        return shelf

    def trim(self) -> int:
        """Give the memory of unused blocks back; returns its bytes."""
        return sum(shelf.trim() for shelf in list(self._shelves.values()))


_checked: list[bool] = []


def _works() -> bool:
    """Whether reference counts show what the pool relies on; tried once on a throw-away shelf."""
    if not _checked:
        _checked.append(_self_test())
    return _checked[0]


def _self_test() -> bool:
    shelf = _Shelf((4,), (1,), torch.float32, Usage(1 << 20))
    first = shelf.take()
    address = first.data_ptr()
    view = first[1:]
    del first
    second = shelf.take()
    if second.data_ptr() == address:
        return False
    del view
    kept = second.untyped_storage()
    del second
    seen = {shelf.take().data_ptr() for _ in range(3)}
    return kept.data_ptr() not in seen and address in seen


pool = Pool(settings.current().pool_mb * 1_000_000)
"""The process-wide pool; its cap is the setting `pool_mb` (FB_POOL_MB) at import."""
