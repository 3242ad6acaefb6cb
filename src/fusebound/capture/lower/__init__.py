"""The decomposition table: framework operator → primitives, one file per family.

Rules that every lowering keeps:

- One rounding per user operator: arithmetic happens in the operator's own type, so that a bfloat16 primitive rounds
  where eager rounds; composites that eager computes in float32 are widened inside and narrowed at the end.
- Promotion follows `torch.result_type`, as an explicit `cast(user=False)`.
- What a lowering cannot state exactly it refuses with `Unlowered`.
"""

from fusebound.capture.lower import (
    activation, create, foreach, gather, loss, move, norm, pointwise, reduce, shift, softmax, statistic,
)  # fmt: skip
from fusebound.capture.lower.context import LOWERINGS, Ctx, T, Unlowered, lowering

__all__ = [
    "LOWERINGS", "Ctx", "T", "Unlowered", "activation", "create", "foreach", "gather", "loss", "lowering", "move",
    "norm", "pointwise", "reduce", "shift", "softmax", "statistic",
]  # fmt: skip
