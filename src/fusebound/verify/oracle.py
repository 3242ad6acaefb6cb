"""The fp64 oracle: the user's undecomposed program in float64, rounding only where the user casts.

Every floating input, parameter, constant and factory is promoted to float64 (complex64 to complex128). Where
the user converts to a narrower type the value is rounded to that type and stays in float64; conversions that
widen or keep the type change nothing. What has no float64 form runs in the user's own types. Comparisons,
integers and random numbers are the user's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import OutputKind

from fusebound.verify.call import Capture, Leaf, bind, program_of
from fusebound.verify.interpreter import WideInterpreter, widened
from fusebound.verify.memory import Copies


@dataclass(frozen=True, slots=True)
class Reference:
    """What the user's program yields in float64: `outputs` in flat order (None and numbers as they are) and
    `inputs`, the program's inputs in the order of `bind`, as they are after the call. `narrow` names the operators that
    have no float64 form and ran in the user's own types."""

    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]
    narrow: tuple[str, ...] = ()


def oracle(captured: Capture, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> list[Any]:
    """The flat outputs of the user's program in float64; the arguments are not changed.

    Raises what the program raises on these values.
    """
    return list(reference(captured, bind(captured, args, kwargs)).outputs)


def reference(captured: Capture, leaves: Sequence[Leaf], jitter: torch.Generator | None = None) -> Reference:
    """Outputs and final inputs of the user's program in float64, for inputs bound by `call.bind`.

    With `jitter` every rounded intermediate moves by up to two ULP of the user's type, as another order of
    evaluation might move it: a result that changes much lies on a jump.
    """
    program = program_of(captured)
    wide = promote(leaves)
    narrow: dict[str, None] = {}
    with torch.no_grad(), _float64_by_default():
        returned = WideInterpreter(program.graph_module, jitter, narrow).run(*wide)
    specs = program.graph_signature.output_specs
    outputs = [r for r, s in zip(returned, specs, strict=True) if s.kind == OutputKind.USER_OUTPUT]
    return Reference(tuple(outputs), tuple(wide), tuple(narrow))


def promote(leaves: Sequence[Leaf]) -> list[Any]:
    """Copies of the inputs in the oracle's types; strides, offsets and shared memory are kept."""
    copies = Copies(widened)
    return [copies.of(leaf.value) if leaf.is_tensor else leaf.value for leaf in leaves]


@contextmanager
def _float64_by_default() -> Iterator[None]:
    """Integer operands of floating operators promote to the default type, which has to be float64 here."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
