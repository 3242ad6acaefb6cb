"""The memory that programs run on: copies of it, what outputs share, what is written where it must not be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fusebound.verify.call import Leaf, has_memory, storage_key

GUARD = 1024
"""Bytes after an argument's own in the copies that programs are verified on."""


class Copies:
    """Copies of tensors that keep strides, offsets and shared memory, and have a guard behind it.

    `widened` says which type the copy of a type has. Tensors of several types that share memory share it in their
    copies where they keep their types.
    """

    def __init__(self, widened: Callable[[torch.dtype], torch.dtype] = lambda dtype: dtype) -> None:
        self._widened = widened
        self._memory: dict[tuple[int, torch.dtype | None], torch.UntypedStorage] = {}

    def of(self, t: torch.Tensor) -> torch.Tensor:
        """A copy that records no gradients; of a tensor without accessible memory, its values alone."""
        wide = self._widened(t.dtype)
        if not has_memory(t):
            return t.detach().to(wide, copy=True)
        key = storage_key(t), None if wide == t.dtype else t.dtype
        if key not in self._memory:
            held = t.untyped_storage()
            self._memory[key] = _guarded(held) if wide == t.dtype else _converted(held, t.dtype, wide)
        return torch.empty(0, dtype=wide).set_(self._memory[key], t.storage_offset(), t.shape, t.stride())


def _converted(storage: torch.UntypedStorage, dtype: torch.dtype, wide: torch.dtype) -> torch.UntypedStorage:
    return torch.empty(0, dtype=dtype).set_(storage).to(wide).untyped_storage()


def _guarded(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    made = torch.full((storage.nbytes() + GUARD,), 0xA5, dtype=torch.uint8)
    made[: storage.nbytes()].copy_(torch.empty(0, dtype=torch.uint8).set_(storage))
    return made.untyped_storage()


def strayed(leaves: Iterable[Leaf], before: torch.UntypedStorage, after: torch.UntypedStorage) -> bool:
    """Whether bytes changed that belong to none of the inputs in this memory (a guard, the space between rows)."""
    was, now = (torch.empty(0, dtype=torch.uint8).set_(s) for s in (before, after))
    other = was != now
    for leaf in leaves:
        if leaf.is_tensor and has_memory(leaf.value) and storage_key(leaf.value) == after._cdata:
            size = leaf.value.element_size()
            shape = (*leaf.value.shape, size)
            strides = (*(s * size for s in leaf.value.stride()), 1)
            other.as_strided(shape, strides, leaf.value.storage_offset() * size).fill_(False)
    return bool(other.any())


def shared(outputs: Sequence[Any], leaves: Sequence[Leaf]) -> tuple[str, ...]:
    """In words, what each output shares its memory with: inputs and earlier outputs."""
    names: dict[int, list[str]] = {}
    for leaf in leaves:
        if leaf.is_tensor and has_memory(leaf.value):
            names.setdefault(storage_key(leaf.value), []).append(f"input {leaf.name!r}")
    found: list[str] = []
    for i, t in enumerate(outputs):
        if not isinstance(t, torch.Tensor) or not has_memory(t) or not t.numel():
            found.append("")
            continue
        held = names.setdefault(storage_key(t), [])
        found.append(" and ".join(held))
        held.append(f"output {i}")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Kept:
    """Results of a call that are still held, and what they were."""

    results: tuple[torch.Tensor, ...]
    contents: tuple[torch.Tensor, ...]

    @property
    def overwritten(self) -> bool:
        """Whether a later call has changed them."""
        pairs = zip(self.results, self.contents, strict=True)
        return not all(torch.equal(_bits(a), _bits(b)) for a, b in pairs)


def keep(outputs: Sequence[Any], copies: Sequence[Any], leaves: Sequence[Leaf]) -> Kept:
    """The tensors among the outputs that are no input's memory, with copies of their contents."""
    own = {storage_key(leaf.value) for leaf in leaves if leaf.is_tensor and has_memory(leaf.value)}
    pairs = [
        (t, c)
        for t, c in zip(outputs, copies, strict=True)
        if isinstance(t, torch.Tensor) and has_memory(t) and storage_key(t) not in own
    ]
    return Kept(tuple(t for t, _ in pairs), tuple(c for _, c in pairs))


def _bits(t: torch.Tensor) -> torch.Tensor:
    return t.detach().clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)
