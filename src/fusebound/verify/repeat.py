"""Whether a built program gives the same bits twice, and with another number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from fusebound.verify.bits import same_bits, same_value
from fusebound.verify.call import Snapshot, tensors
from fusebound.verify.inputs import LIKE, fill
from fusebound.verify.program import Outcome, Program

_DRAWS = 8
"""Sets of values on which eager is asked whether its own bits depend on the number of threads."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """`None` where eager itself differs between the two runs, so that nothing can be asked of the program."""

    deterministic: bool | None
    threads: bool | None
    faults: tuple[str, ...] = ()


def repeat(program: Program, seed: int = 0) -> Repeats:
    """Run the program on its present inputs twice, and with another number of threads."""
    first = program.fused(seed)
    if first.error is not None:
        return Repeats(None, None)
    deterministic = _same(first, program.fused(seed))
    if not deterministic and not _same(program.eager(seed), program.eager(seed)):
        deterministic = None
    with _other_threads():
        threads = _same(first, program.fused(seed))
    if not threads and _eager_depends_on_threads(program, seed):
        threads = None
    faults: list[str] = []
    if deterministic is False:
        faults.append("two runs on the same inputs differ")
    elif threads is False:
        faults.append("the result depends on the number of threads")
    return Repeats(deterministic, threads, tuple(faults))


def differs(watched: Outcome, plain: Outcome) -> str:
    """What a run as users make it, into memory that nothing has filled, shows that a watched one did not."""
    return "" if _same(watched, plain) else "a run into memory that was not filled before differs"


def _eager_depends_on_threads(program: Program, seed: int) -> bool:
    """Whether the framework alone gives other bits with another number of threads, on these values or on some like
    them: that a sum split otherwise rounds to the same bits is chance, and steps of the program may be the framework's.
    """
    given = Snapshot(tensors(program.leaves))
    try:
        for draw in range(_DRAWS):
            if draw:
                fill(program.leaves, LIKE, seed + draw)
                program.settle()
            with _other_threads():
                other = program.eager(seed)
            if not _same(program.eager(seed), other):
                return True
        return False
    finally:
        given.restore()
        program.settle()


@contextmanager
def _other_threads() -> Iterator[None]:
    now = torch.get_num_threads()
    torch.set_num_threads(1 if now > 1 else 2)
    try:
        yield
    finally:
        torch.set_num_threads(now)


def _same(a: Outcome, b: Outcome) -> bool:
    """Equal outputs and changed inputs, bit for bit; any NaN equals any other."""
    if len(a.outputs) != len(b.outputs) or a.changed.keys() != b.changed.keys():
        return False
    pairs = [*zip(a.outputs, b.outputs, strict=True), *((a.changed[i], b.changed[i]) for i in a.changed)]
    return all(_equal(x, y) for x, y in pairs)


def _equal(x: object, y: object) -> bool:
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return same_value(x, y)
    if x.layout != torch.strided or y.layout != torch.strided:
        x, y = x.to_dense(), y.to_dense()
    return x.shape == y.shape and x.dtype == y.dtype and same_bits(x, y)
