"""The first call of a kind, once each way: tracing believes some layouts and views that eager does not make."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.export.graph_signature import OutputKind
from torch.fx import Interpreter, Node

from fusebound.capture.checks import is_equality
from fusebound.capture.torch import Captured
from fusebound.ir.graph import Ref
from fusebound.verify.call import Leaf, bind, program_of
from fusebound.verify.memory import Copies
from fusebound.words import count

Layout = tuple[Any, ...]
Copier = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """What of a call is not as eager has it. `only_layout` says that the results are of the same types and shapes, with
    other strides or in other memory."""

    text: str
    only_layout: bool


def rehearse(
    exe: Runs, captured: Captured, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Difference | None:
    """How a call of the executable differs from the traced program run by the framework, operator by operator; None
    where exceptions, types, shapes, strides and memory are the same.

    Both run on copies, so that neither arguments nor parameters nor the random generator change, and no Python of the
    user's runs again. Values are not compared: that is what `fusebound verify` is for.
    """
    leaves = bind(captured, args, kwargs)
    with torch.no_grad():
        theirs = _observed(leaves, lambda copy: _framework(captured, leaves, copy))
        mine = _observed(leaves, lambda copy: _fused(exe, captured, args, kwargs, copy))
    if mine == theirs:
        return None
    if isinstance(mine, str) or isinstance(theirs, str) or len(mine) != len(theirs):
        return Difference(f"the plan {_words(mine)}, eager {_words(theirs)}", only_layout=False)
    i, a, b = next((i, a, b) for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
    users = sum(leaf.kind == "user" for leaf in leaves)
    what = f"argument {i}" if i < users else f"result {i - users}"
    same = all(a[:2] == b[:2] for a, b in zip(mine, theirs, strict=True))
    return Difference(f"{what} is left as {_words(a)}, by eager as {_words(b)}", only_layout=same)


class Runs(Protocol):
    """What is rehearsed: an executable."""

    def run(self, inputs: Sequence[Any]) -> list[Any]: ...


def _observed(leaves: Sequence[Leaf], run: Callable[[Copier], list[Any]]) -> list[Layout] | str:
    """The layouts of arguments and results after a run, or the name of what it raised."""
    copied = functools.cache(Copies().of)  # one object stays one object

    def copy(value: Any) -> Any:
        return copied(value) if isinstance(value, torch.Tensor) else value

    given = [copy(leaf.value) for leaf in leaves if leaf.kind == "user"]
    try:
        with torch.random.fork_rng(devices=[]):
            return layouts([*given, *run(copy)])
    except Exception as error:
        return type(error).__name__


def _framework(captured: Captured, leaves: Sequence[Leaf], copy: Copier) -> list[Any]:
    program = program_of(captured)
    returned = _Traced(program.graph_module).run(*(copy(leaf.value) for leaf in leaves))
    specs = program.graph_signature.output_specs
    return [r for r, s in zip(returned, specs, strict=True) if s.kind == OutputKind.USER_OUTPUT]


class _Traced(Interpreter):
    """The traced program without its checks that sizes are equal: operators ask for that themselves, or broadcast."""

    def run_node(self, n: Node) -> Any:
        return None if is_equality(n) else super().run_node(n)


def _fused(
    exe: Runs, captured: Captured, args: Sequence[Any], kwargs: Mapping[str, Any], copy: Copier
) -> list[Any]:
    values = iter(exe.run([copy(t) for t in captured.bind(args, kwargs)]))
    return [next(values) if isinstance(r, Ref) else r for r in captured.returns]


def layouts(held: Sequence[Any]) -> list[Layout]:
    """For each tensor: type, shape, the strides that are walked, the first one in the same memory (no element lies in
    any) and the bytes from there, and the first one that is the same object. Of other values, the type."""
    first: dict[int, tuple[int, int]] = {}
    objects: dict[int, int] = {}
    found: list[Layout] = []
    for i, t in enumerate(held):
        if not isinstance(t, torch.Tensor) or t.layout != torch.strided:
            found.append((type(t).__name__, ()))
            continue
        place = int(t.storage_offset()) * t.element_size()
        owner, start = first.setdefault(t.untyped_storage()._cdata, (i, place)) if t.numel() else (i, place)
        strides = tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1) if t.numel() else ()
        same = objects.setdefault(id(t), i)
        found.append((str(t.dtype), tuple(t.shape), strides, owner, place - start, same))
    return found


def _words(what: object) -> str:
    match what:
        case str(error):
            return f"raises {error}"
        case list(results):
            return f"gives {count(len(results), 'value')}"
        case (dtype, shape, strides, owner, offset, same):
            where = f"in the memory of value {owner} at byte {offset}"
            return (
                f"{str(dtype)[6:]}{list(shape)}, strides {strides}, {where}, the same object as value {same}"
            )
        case _:
            return str(what)
