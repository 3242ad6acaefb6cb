"""The hand-written operator of the textbook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from fusebound.errors import UsageError
from fusebound.ir.dtypes import DTYPES

REGISTERS = {"elementwise": 8, "reduce": 32}
"""The taught register count of each kind of operator."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: `op_type` is "elementwise" or "reduce"; `inputs` and `outputs` are names of tensors.

    The last five fields are not in the taught form. `shape` (of every output) and `dtype` let the gain be
    computed; `dynamic` marks an output whose size depends on data (for NoFuse); `shared_memory` (bytes per
    block) and `threads` (per block, 0 for any) let the other two resource rules be answered.
    Raises UsageError for an unknown `op_type` or `dtype`.
    """

    name: str
    op_type: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    uses_branch: bool = False
    shape: Sequence[int] | None = None
    dtype: str = "float32"
    dynamic: bool = False
    shared_memory: int = 0
    threads: int = 0

    def __post_init__(self) -> None:
        if self.op_type not in REGISTERS:
            raise UsageError(
                f"operator {self.name}: op_type {self.op_type!r}", hint=f"one of {', '.join(REGISTERS)}"
            )
        if self.dtype not in DTYPES:
            raise UsageError(
                f"operator {self.name}: dtype {self.dtype!r}", hint=f"one of {', '.join(DTYPES)}"
            )

    @property
    def is_reduce(self) -> bool:
        return self.op_type == "reduce"

    @property
    def elements(self) -> int | None:
        """Elements of one output; None where the shape is not given."""
        return None if self.shape is None else prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return DTYPES[self.dtype].itemsize

    def regs(self) -> int:
        """Registers per thread as taught: 8 for an elementwise operator, 32 for a reduction."""
        return REGISTERS[self.op_type]
