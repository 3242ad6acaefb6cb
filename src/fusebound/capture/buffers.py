"""Assignments to buffers, `self.b = …`: what a graph can say of them, and what it cannot (E202)."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as modules
from torch.utils._pytree import tree_leaves

from fusebound.capture.overlap import storage_of
from fusebound.capture.source import shown
from fusebound.errors import CaptureError
from fusebound.ir.graph import Source

_RECORDER = "_map_assigned_buffer_to_proxy"
"""The name of the framework's hooks that record assignments to buffers."""

Line = Callable[[str], Source]
"""The user's line that stores an attribute."""


def assigning(root: torch.nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any, line: Line) -> Any:
    """What `forward` returns; what it assigned to a buffer, of any submodule, is copied into it at the end: a graph
    writes into buffers, and never exchanges them.

    Raises CaptureError (E202) for what a copy does not say: a tensor of another kind, a second name for the old or
    the new one, and a result that shows the old one.
    """
    held = [
        (f"{path}.{name}" if path else name, m._buffers, name, t)
        for path, m in root.named_modules()
        for name, t in m._buffers.items()
        if t is not None
    ]
    state = [*root.named_parameters(), *((name, t) for name, _, _, t in held)]
    owners = {storage_of(t): name for name, t in state}
    owned = Counter(storage_of(t) for _, t in state)
    owners |= {storage_of(t): "an argument" for t in _tensors((args, kwargs))}
    with _unrecorded():
        result = forward(*args, **kwargs)
    shown_by_result = {storage_of(t) for t in _tensors(result)}
    for label, table, name, old in held:
        new = table.get(name)
        if not isinstance(new, torch.Tensor) or new is old:
            continue
        if not _is_all_of(new, old):
            _check(label, old, new, owners, line(name))
            if owned[storage_of(old)] > 1:
                raise _refusal(f"gives one of two names for a buffer, {label}, a new tensor", line(name))
            if storage_of(old) in shown_by_result:
                raise _refusal(f"returns what {label} held and gives it a new tensor", line(name))
            owners[storage_of(new)] = label
            old.copy_(new)
        table[name] = old
    return result


@contextlib.contextmanager
def _unrecorded() -> Iterator[None]:
    """Keep the framework from recording assignments: it knows those of the outermost module's buffers alone, and
    takes the wrong buffer behind one that is None."""
    hooks = modules._global_buffer_registration_hooks
    recorders = {k: h for k, h in hooks.items() if getattr(h, "__name__", "") == _RECORDER}
    for k in recorders:
        del hooks[k]
    try:
        yield
    finally:
        hooks.update(recorders)


def _tensors(held: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(held) if isinstance(t, torch.Tensor)]


def _check(label: str, old: torch.Tensor, new: torch.Tensor, owners: dict[int, str], source: Source) -> None:
    other = owners.get(storage_of(new), "" if isinstance(new, FakeTensor) else "a tensor from outside")
    if other:
        raise _refusal(f"makes {label} and {other} two names for one tensor", source)
    if (old.shape, old.dtype, old.device) != (new.shape, new.dtype, new.device):
        raise _refusal(f"replaces the buffer {label}, {_kind(old)}, by {_kind(new)}", source)


def _refusal(what: str, source: Source) -> CaptureError:
    return CaptureError(
        f"the function {what}: a graph writes into a buffer, and never exchanges it", where=shown(source),
        hint="assign a copy of the same kind (.clone()), or run it eagerly", code="E202",
    )  # fmt: skip


def _is_all_of(new: torch.Tensor, old: torch.Tensor) -> bool:
    """Whether two tensors are the same elements in the same places, as `old` and what `old.add_(1)` returns."""
    return (
        storage_of(new) == storage_of(old)
        and (new.dtype, new.shape, new.stride()) == (old.dtype, old.shape, old.stride())
        and new.storage_offset() == old.storage_offset()
    )


def _kind(t: torch.Tensor) -> str:
    return f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}"


def tied(root: torch.nn.Module) -> list[str]:
    """Names of the first buffer that has several."""
    names: dict[int, list[str]] = {}
    for name, t in root.named_buffers(remove_duplicate=False):
        names.setdefault(storage_of(t), []).append(name)
    return next((n for n in names.values() if len(n) > 1), [])
