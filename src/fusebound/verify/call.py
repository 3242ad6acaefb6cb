"""One call of a captured function: its tensors by name and role, and their contents before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from fusebound.errors import UsageError
from fusebound.verify.exact import is_free

_KINDS = {
    InputKind.PARAMETER: "param",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "const",
    InputKind.USER_INPUT: "user",
}


class Capture(Protocol):
    """What verification needs of `capture.torch.Captured`: the user's function and its undecomposed
    program."""

    @property
    def fn(self) -> Callable[..., object]: ...

    @property
    def program(self) -> ExportedProgram | None: ...


def program_of(captured: Capture) -> ExportedProgram:
    """The undecomposed program; raises UsageError for a graph that was loaded without one."""
    if captured.program is None:
        raise UsageError("a graph without its program cannot be verified", hint="capture the function itself")
    return captured.program


@dataclass(frozen=True, slots=True)
class Leaf:
    """One input of the program. `kind` is "user", "param", "buffer", "const" or "other" (no tensor); `free` says
    that it holds integers which only arithmetic reads, so that each value of their type is valid."""

    name: str
    kind: str
    value: Any
    free: bool = False

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.value, torch.Tensor)


def bind(captured: Capture, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> tuple[Leaf, ...]:
    """The inputs of `captured.program` for one call, in the order of its placeholders, by reference.

    Raises UsageError where the arguments do not have the structure that was captured.
    """
    program = program_of(captured)
    users = iter(_flat_arguments(program, args, kwargs or {}))
    leaves: list[Leaf] = []
    for spec in program.graph_signature.input_specs:
        kind = _KINDS.get(spec.kind, "other")
        value = next(users) if kind == "user" else _state(program, spec.target)
        name = spec.target or getattr(spec.arg, "name", "")
        leaves.append(Leaf(name, kind, value, kind == "user" and is_free(program, spec.arg.name, value)))
    return tuple(leaves)


def _state(program: ExportedProgram, target: str | None) -> Any:
    if target in program.state_dict:
        return program.state_dict[target]
    return program.constants.get(target) if target else None


def _flat_arguments(program: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Arguments in the order of the program, whatever the order in which the keywords were written."""
    expected = program.call_spec.in_spec
    if expected is None:
        return pytree.tree_leaves((tuple(args), dict(kwargs)))
    names: list[str] = expected.child(1).context or []
    if set(names) != set(kwargs):
        raise UsageError(f"keyword arguments {sorted(kwargs)} where {sorted(names)} were captured")
    flat, spec = pytree.tree_flatten((tuple(args), {n: kwargs[n] for n in names}))
    if spec != expected:
        raise UsageError("the arguments do not have the structure that was captured")
    return flat


def tensors(leaves: Iterable[Leaf]) -> list[torch.Tensor]:
    """The tensors among `leaves`, in order."""
    return [leaf.value for leaf in leaves if leaf.is_tensor]


def storage_key(tensor: torch.Tensor) -> int:
    """Equal for tensors that share memory."""
    return tensor.untyped_storage()._cdata


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor's bytes can be read and written here: strided, on the CPU, not empty of storage."""
    return tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized


class Snapshot:
    """The bytes behind some tensors; views that share memory are kept once."""

    def __init__(self, held: Iterable[torch.Tensor]) -> None:
        self._storages = {storage_key(t): t.untyped_storage() for t in held if has_memory(t)}
        self._bytes = {key: s.clone() for key, s in self._storages.items()}

    def restore(self, keys: Iterable[int] | None = None) -> None:
        """Write the bytes back, in place: all, or those of some storages."""
        for key in self._storages if keys is None else keys:
            self._storages[key].copy_(self._bytes[key])

    def changed(self) -> set[int]:
        """Keys (`storage_key`) of the storages that no longer hold the bytes that they held."""
        return {
            key for key in self._storages if not torch.equal(_bytes(self._storages[key]), self._held(key))
        }

    def both(self, key: int) -> tuple[torch.UntypedStorage, torch.UntypedStorage]:
        """The bytes that a storage held, and the storage."""
        return self._bytes[key], self._storages[key]

    def _held(self, key: int) -> torch.Tensor:
        return _bytes(self._bytes[key])


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    """The storage as a tensor of words, or of bytes where words do not fit."""
    word = torch.int64 if storage.nbytes() % 8 == 0 and storage.data_ptr() % 8 == 0 else torch.uint8
    return torch.empty(0, dtype=word).set_(storage)
