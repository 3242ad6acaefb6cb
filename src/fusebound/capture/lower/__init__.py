"""The decomposition table: framework operator → primitives, one file per family.

Rules that every lowering keeps:

- One rounding per user operator: arithmetic happens in the operator's own type, so that a bfloat16
  primitive rounds where eager rounds; composites that eager computes in float32 are widened inside and
  narrowed at the end.
- Promotion follows `torch.result_type`, as an explicit `cast(user=False)`.
- What a lowering cannot state exactly it refuses with `Unlowered`.
"""

from fusebound.capture.lower import activation as _activation
from fusebound.capture.lower import arithmetic as _arithmetic
from fusebound.capture.lower import create as _create
from fusebound.capture.lower import foreach as _foreach
from fusebound.capture.lower import gather as _gather
from fusebound.capture.lower import gradient as _gradient
from fusebound.capture.lower import loss as _loss
from fusebound.capture.lower import move as _move
from fusebound.capture.lower import norm as _norm
from fusebound.capture.lower import number as _number
from fusebound.capture.lower import pointwise as _pointwise
from fusebound.capture.lower import random as _random
from fusebound.capture.lower import reduce as _reduce
from fusebound.capture.lower import shift as _shift
from fusebound.capture.lower import softmax as _softmax
from fusebound.capture.lower import statistic as _statistic
from fusebound.capture.lower.context import LOWERINGS, NUMBERS, Ctx, T, Unlowered, lowering

FAMILIES = (
    _activation, _arithmetic, _create, _foreach, _gather, _gradient, _loss, _move, _norm, _number, _pointwise,
    _random, _reduce, _shift, _softmax, _statistic,
)  # fmt: skip
"""Importing a family registers its lowerings."""

__all__ = ["FAMILIES", "LOWERINGS", "NUMBERS", "Ctx", "T", "Unlowered", "lowering"]
