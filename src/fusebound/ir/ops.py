"""The primitive operators: class, arity, attributes. Everything that is not here is a boundary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OpClass = Literal["pointwise", "reduce", "move", "gather", "scatter", "scan", "contract", "random", "opaque"]
CLASSES: tuple[OpClass, ...] = (
    "pointwise", "reduce", "move", "gather", "scatter", "scan", "contract", "random", "opaque",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpSpec:
    """What the IR knows of a primitive. `arity` -1 means any number of operands.

    `probability` is its operand, which must lie in [0, 1]: the kernel raises where it does not.
    `flops` is the cost of one element in vector instructions (approximate, for the cost model).
    `discontinuous` marks operators whose result jumps, so that a rounding before them may not vanish.
    """

    name: str
    cls: OpClass
    arity: int
    attrs: tuple[str, ...] = ()
    flops: int = 1
    discontinuous: bool = False


def _table() -> dict[str, OpSpec]:
    specs: list[OpSpec] = []

    def many(names: str, cls: OpClass, arity: int, **kw: object) -> None:
        specs.extend(OpSpec(n, cls, arity, **kw) for n in names.split())  # type: ignore[arg-type]

    many("const", "pointwise", 0, attrs=("value",), flops=0)
    many("iota", "pointwise", 0, attrs=("dim", "start", "step"), flops=1)
    many("neg abs", "pointwise", 1)
    many("sign", "pointwise", 1, flops=3, discontinuous=True)
    many("sqrt", "pointwise", 1, flops=6)
    many("reciprocal", "pointwise", 1, flops=4)
    many("rsqrt", "pointwise", 1, flops=10)
    many("exp exp2", "pointwise", 1, flops=14)
    many("expm1 log log2 log10 log1p", "pointwise", 1, flops=20)
    many("sin cos tanh sigmoid erf", "pointwise", 1, flops=22)
    many("tan sinh cosh asin acos atan asinh acosh atanh erfc", "pointwise", 1, flops=40)
    many("floor ceil round trunc", "pointwise", 1, discontinuous=True)
    many("isnan isinf isfinite", "pointwise", 1, flops=2)
    many("probability", "pointwise", 1, flops=3)
    many("add sub mul maximum minimum clamp_min clamp_max", "pointwise", 2, flops=1)
    many("div", "pointwise", 2, flops=4)
    many("floor_div rem fmod trunc_div", "pointwise", 2, flops=10, discontinuous=True)
    many("pow", "pointwise", 2, flops=45)
    many("atan2", "pointwise", 2, flops=50)
    many("eq ne lt le gt ge", "pointwise", 2, discontinuous=True)
    many("and or xor shl shr", "pointwise", 2)
    many("not", "pointwise", 1)
    many("where fma", "pointwise", 3)
    many("cast", "pointwise", 1, attrs=("user",))

    many("sum prod amax amin any all", "reduce", 1, attrs=("axes",), flops=2)
    many("argmax argmin", "reduce", 1, attrs=("axes",), flops=4, discontinuous=True)

    many("reshape expand", "move", 1, flops=0)
    many("permute", "move", 1, attrs=("perm",), flops=0)
    many("slice", "move", 1, attrs=("dim", "start", "step"), flops=0)
    many("flip", "move", 1, attrs=("dims",), flops=0)
    many("pad", "move", 1, attrs=("lo", "value"), flops=0)
    many("cat", "move", -1, attrs=("dim",), flops=0)
    many("slice_scatter", "move", 2, attrs=("dim", "start", "step"), flops=0)

    many("gather index_select", "gather", 2, attrs=("dim",), flops=2)

    # Ten rounds of two multiplications on half as many lanes each.
    many("random", "random", 1, attrs=("draw", "word"), flops=130)
    return {s.name: s for s in specs}


OPS: dict[str, OpSpec] = _table()


def spec_of(op: str) -> OpSpec | None:
    """The primitive's spec, or None for an operator that is run by the framework."""
    return OPS.get(op)
