"""The primitive operators: class, arity, attributes. Everything that is not here is a boundary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OpClass = Literal["pointwise", "reduce", "move", "gather", "scatter", "scan", "contract", "random", "opaque"]
CLASSES: tuple[OpClass, ...] = (
    "pointwise", "reduce", "move", "gather", "scatter", "scan", "contract", "random", "opaque",
)  # fmt: skip

Fault = Literal["index", "division", "probability", "overflow"]
FAULTS: tuple[Fault, ...] = ("index", "division", "probability", "overflow")
"""Why an operator raises at an element: an index out of range, an integer divided by zero, a number that is no
probability, a finite number beyond float32. A kernel's flag word holds the place in this list, from 1."""


@dataclass(frozen=True, slots=True)
class OpSpec:
    """What the IR knows of a primitive. `arity` -1 means any number of operands.

    `flops` is the cost of one element in vector instructions (approximate, for the cost model).
    `discontinuous` marks operators whose result jumps, so that a rounding before them may not vanish.
    `floats` marks operators of floats alone. `result` is the result's element type where it is not the operands'
    common one: a name, "first" (operand), "rest" (all operands but the first), or "given" (by the node).
    `accumulates` marks reductions that round at every step: their order matters, and their result may be wider.
    `exact` marks operators that bring no rounding of their own. `raises` is what may be wrong with an element, so that
    eager raises and a kernel sets its flag word: with "division" only where the result is an integer. `probability` and
    `fits_float32` are their operand and nothing else.
    """

    name: str
    cls: OpClass
    arity: int
    attrs: tuple[str, ...] = ()
    flops: int = 1
    discontinuous: bool = False
    floats: bool = False
    result: str = ""
    accumulates: bool = False
    exact: bool = False
    raises: Fault | None = None


def _table() -> dict[str, OpSpec]:
    specs: list[OpSpec] = []

    def many(names: str, cls: OpClass, arity: int, **kw: object) -> None:
        specs.extend(OpSpec(n, cls, arity, **kw) for n in names.split())  # type: ignore[arg-type]

    many("const", "pointwise", 0, attrs=("value",), flops=0, result="given", exact=True)
    many("iota", "pointwise", 0, attrs=("dim", "start", "step"), flops=1, result="given", exact=True)
    many("neg abs", "pointwise", 1, exact=True)
    many("sign", "pointwise", 1, flops=3, discontinuous=True)
    many("sqrt", "pointwise", 1, flops=6, floats=True)
    many("reciprocal", "pointwise", 1, flops=4, floats=True)
    many("rsqrt", "pointwise", 1, flops=10, floats=True)
    many("exp exp2", "pointwise", 1, flops=14, floats=True)
    many("expm1 log log2 log10 log1p", "pointwise", 1, flops=20, floats=True)
    many("sin cos tanh sigmoid erf", "pointwise", 1, flops=22, floats=True)
    many("tan sinh cosh asin acos atan asinh acosh atanh erfc", "pointwise", 1, flops=40, floats=True)
    many("floor ceil round trunc", "pointwise", 1, discontinuous=True)
    many("isnan isinf isfinite", "pointwise", 1, flops=2, result="bool")
    many("probability", "pointwise", 1, flops=3, floats=True, raises="probability")
    many("fits_float32", "pointwise", 1, flops=3, floats=True, exact=True, raises="overflow")
    many("add sub mul maximum minimum clamp_min clamp_max", "pointwise", 2, flops=1)
    many("div", "pointwise", 2, flops=4, floats=True)
    many("floor_div rem fmod trunc_div", "pointwise", 2, flops=10, discontinuous=True, raises="division")
    many("pow", "pointwise", 2, flops=45)
    many("atan2", "pointwise", 2, flops=50, floats=True)
    many("eq ne lt le gt ge", "pointwise", 2, discontinuous=True, result="bool")
    many("and or xor", "pointwise", 2)
    many("shl shr", "pointwise", 2, result="first")
    many("not", "pointwise", 1)
    many("where", "pointwise", 3, result="rest")
    many("fma", "pointwise", 3, floats=True)
    many("cast", "pointwise", 1, attrs=("user",), result="given")

    many("sum prod", "reduce", 1, attrs=("axes",), flops=2, accumulates=True)
    many("amax amin", "reduce", 1, attrs=("axes",), flops=2)
    many("any all", "reduce", 1, attrs=("axes",), flops=2, result="bool")
    many("argmax argmin", "reduce", 1, attrs=("axes",), flops=4, discontinuous=True, result="int64")

    many("reshape expand", "move", 1, flops=0, exact=True)
    many("permute", "move", 1, attrs=("perm",), flops=0, exact=True)
    many("slice", "move", 1, attrs=("dim", "start", "step"), flops=0, exact=True)
    many("flip", "move", 1, attrs=("dims",), flops=0, exact=True)
    many("pad", "move", 1, attrs=("lo", "value"), flops=0, exact=True)
    many("cat", "move", -1, attrs=("dim",), flops=0, exact=True)
    many("slice_scatter", "move", 2, attrs=("dim", "start", "step"), flops=0, exact=True)

    many("gather index_select", "gather", 2, attrs=("dim",), flops=2, result="first", exact=True,
         raises="index")  # fmt: skip

    # Ten rounds of two multiplications on half as many lanes each.
    many("random", "random", 1, attrs=("draw", "word"), flops=130, result="int32")
    return {s.name: s for s in specs}


OPS: dict[str, OpSpec] = _table()


def spec_of(op: str) -> OpSpec | None:
    """The primitive's spec, or None for an operator that is run by the framework."""
    return OPS.get(op)
