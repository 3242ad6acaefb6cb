"""Mutants that survive, site by site, each with the reason, and what the reason has to show.

A rule names the program, the operators and the statements: nothing else is excused. "equivalent" survivors have to give
the original's bits, "conforming" ones to keep the contract, both on values that the verifier did not draw (`proof.py`).
"borderline" ones are an ULP of a constant, for which the contract has room but where roundings add to it on nearly all
elements of a draw: they break it on less than one draw in a hundred, and the verifier sees it with other seeds.
"""

# ruff: noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tests.mutation.harness import Mutation, Subject
from tests.mutation.proof import keeps_contract, same_bits, seldom_breaks

SAME, WITHIN, SELDOM = "equivalent", "conforming", "borderline"


def statement(mutation: Mutation) -> str:
    """The site without the statement's number."""
    return re.sub(r"^(g\d+) \d+: ", r"\1 ", mutation.site)


@dataclass(frozen=True, slots=True)
class Excuse:
    """Mutants of one program, by operator and by the text of the statement without its number."""

    program: str
    operators: tuple[str, ...]
    sites: tuple[str, ...]
    kind: str
    why: str

    def covers(self, subject: Subject, mutation: Mutation) -> bool:
        """Whether it names this mutant."""
        named = subject.name == self.program and mutation.operator in self.operators
        return named and statement(mutation) in self.sites

    def holds(self, subject: Subject, mutation: Mutation) -> bool:
        """Whether the mutant shows what the rule says of it."""
        shows = {SAME: same_bits, WITHIN: keeps_contract, SELDOM: seldom_breaks}[self.kind]
        return shows(subject, mutation)


# fmt: off
EXCUSES = (
    Excuse('gate', ('zeros lose their sign',), ('g0 div[i1] = t11',), SAME, 'never -0: a sum from +0, a quotient of positive numbers, or only subtracted again'),
    Excuse('gate', ('constant an ULP',), ('g0 t2 = 1.5 : float32',), SELDOM, 'an ULP of a constant is a rounding, for which 2 ULP have room'),
    Excuse('bfloat16 chain', ('zeros lose their sign',), ('g0 sub[i1] = t9',), SAME, 'a constant that is no zero was added: never -0, or only by rounding'),
    Excuse('bfloat16 chain', ('subnormals flushed',), ('g0 sub[i1] = t9',), SAME, 'a constant that is no zero was added: no subnormal number comes out, or the store rounds it away'),
    Excuse('bfloat16 chain', ('rounding added or left out',), ('g0 t4 = add(t2, t3) : bfloat16', 'g0 t7 = mul(t4, t6) : bfloat16'), WITHIN, 'eager rounds there; wide is nearer to fp64'),
    Excuse('bfloat16 chain', ('rounding added or left out',), ('g0 t6 = tanh(t5) : bfloat16',), SELDOM, 'eager rounds there; wide is nearer to fp64, but on one large element of a draw the two roundings of eager may cancel'),
    Excuse('float64 chain', ('constant an ULP',), ('g0 t1 = 1.0 : float64',), WITHIN, "an ULP of an operand, as eager's own rounding of it"),
    Excuse('softmax', ('constant an ULP',), ('g0 t1 = 0.699999988079071 : float32',), SELDOM, 'an ULP of a constant is a rounding, for which 2 ULP have room'),
    Excuse('softmax', ('zeros lose their sign',), ('g0 a1 += t3', 'g0 a2 += t8'), SAME, 'a sum begins with +0, a maximum is subtracted again: the sign of zero goes nowhere'),
    Excuse('softmax', ('subnormals flushed',), ('g0 a1 += t3', 'g0 a2 += t8'), SAME, 'beside the largest term, or taken in float64 by a term that is normal: below half an ULP of the sum'),
    Excuse('softmax', ('zeros lose their sign',), ('g0 s0[i1] = t8', 'g0 softmax[83*i0 + i1] = t11'), SAME, 'never -0: a sum from +0, a quotient of positive numbers, or only subtracted again'),
    Excuse('softmax', ('taken in twice',), ('g0 a1 += t3',), SAME, 'a maximum of a value with itself'),
    Excuse('softmax', ('NaN left out',), ('g0 a1 += t3', 'g0 a2 += t8'), SAME, 'the mean, the maximum or the element itself makes the row NaN anyway'),
    Excuse('softmax', ('infinities left out',), ('g0 a2 += t8',), SAME, 'the mean, the maximum or the element itself makes the row NaN anyway'),
    Excuse('softmax', ('reduction starts finite',), ('g0 store <16 x float> splat 0', 'g0 store <16 x float> splat 1', 'g0 store <16 x float> splat 2', 'g0 store <16 x float> splat 3'), SAME, 'a row of -Inf is NaN either way; any element replaces the start of a position'),
    Excuse('softmax', ('accumulated in float32',), ('g0 every sum',), WITHIN, "32 partial sums: no worse than eager's"),
    Excuse('layer norm, gelu', ('operands swapped',), ('g0 t7 = sub(t6, t5) : float32',), SAME, 'squared, or its size taken; extrema of IEEE 2019 commute'),
    Excuse('layer norm, gelu', ('zeros lose their sign',), ('g0 a1 += t1', 'g0 a2 += t8'), SAME, 'a sum begins with +0, a maximum is subtracted again: the sign of zero goes nowhere'),
    Excuse('layer norm, gelu', ('subnormals flushed',), ('g0 a1 += t1', 'g0 a2 += t8'), SAME, 'beside the largest term, or taken in float64 by a term that is normal: below half an ULP of the sum'),
    Excuse('layer norm, gelu', ('constant an ULP',), ('g0 t3 = 83.0 : float64', 'g0 t12 = 9.999999747378752e-06 : float32'), SAME, 'the ULP vanishes in a rounding'),
    Excuse('layer norm, gelu', ('constant an ULP',), ('g0 t10 = 83.0 : float32', 'g0 t16 = 0.7071067690849304 : float32'), WITHIN, "an ULP of an operand, as eager's own rounding of it"),
    Excuse('layer norm, gelu', ('NaN left out',), ('g0 a1 += t1', 'g0 a2 += t8'), SAME, 'the mean, the maximum or the element itself makes the row NaN anyway'),
    Excuse('rms norm', ('zeros lose their sign',), ('g0 a1 += t5',), SAME, 'a sum begins with +0, a maximum is subtracted again: the sign of zero goes nowhere'),
    Excuse('rms norm', ('subnormals flushed',), ('g0 a1 += t5',), SAME, 'beside the largest term, or taken in float64 by a term that is normal: below half an ULP of the sum'),
    Excuse('rms norm', ('constant an ULP',), ('g0 t7 = 83.0 : float32', 'g0 t9 = 9.999999747378752e-06 : float32'), SAME, 'the ULP vanishes in a rounding'),
    Excuse('rms norm', ('constant one less',), ('g0 t7 = 83.0 : float32',), WITHIN, 'one part in 83 of a sum before the root, within 2 ULP of bfloat16'),
    Excuse('rms norm', ('rounding added or left out',), ('g0 t3 = add(t1, t2) : bfloat16',), WITHIN, 'eager rounds there; wide is nearer to fp64'),
    Excuse('rms norm', ('conversion left out',), ('g0 t17 = cast(t16) : bfloat16',), SAME, 'the store converts'),
    Excuse('rms norm', ('accumulated in float32',), ('g0 every sum',), SAME, "32 partial sums: no worse than eager's"),
    Excuse('column sums', ('zeros lose their sign',), ('g0 a1 += t3',), SAME, 'a sum begins with +0, a maximum is subtracted again: the sign of zero goes nowhere'),
    Excuse('column sums', ('subnormals flushed',), ('g0 a1 += t3',), SAME, 'beside the largest term, or taken in float64 by a term that is normal: below half an ULP of the sum'),
    Excuse('column sums', ('zeros lose their sign',), ('g0 sum_1[i0] = t4',), SAME, 'never -0: a sum from +0, a quotient of positive numbers, or only subtracted again'),
    Excuse('column sums', ('subnormals flushed',), ('g0 sum_1[i0] = t4',), SAME, 'a sum of ordinary numbers whose result has no subnormal part'),
    Excuse('masked mean', ('zeros lose their sign',), ('g0 a2 += t5',), SAME, 'a sum begins with +0, a maximum is subtracted again: the sign of zero goes nowhere'),
    Excuse('masked mean', ('converted by int8',), ('g0 t10 = cast(t9) : float32',), SAME, 'the value is a small whole number already'),
    Excuse('masked mean', ('accumulated in float32',), ('g0 every sum',), WITHIN, "32 partial sums: no worse than eager's"),
    Excuse('largest', ('zeros lose their sign',), ('g0 a1 += t3', 'g0 a2 += t3'), SAME, 'a sum begins with +0, a maximum is subtracted again: the sign of zero goes nowhere'),
    Excuse('largest', ('taken in twice',), ('g0 a1 += t3', 'g0 a2 += t3', 'g0 a3 += t3'), SAME, 'a maximum of a value with itself'),
    Excuse('largest', ('reduction starts elsewhere',), ('g0 store <8 x i64> splat 1', 'g0 store <8 x i64> splat 3', 'g0 store <8 x i64> splat 5', 'g0 store <8 x i64> splat 7'), SAME, 'the position of the start, which the first element replaces'),
    Excuse('largest', ('reduction starts finite',), ('g0 store <8 x float> splat 0', 'g0 store <8 x float> splat 2'), SAME, 'a row of -Inf is NaN either way; any element replaces the start of a position'),
    Excuse('quantize', ('constant an ULP',), ('g0 t1 = 0.05000000074505806 : float32', 'g0 t4 = 127.0 : float32'), SAME, 'the ULP vanishes in a rounding'),
    Excuse('quantize', ('converted by round', 'converted by floor', 'converted by ceil'), ('g0 t11 = cast(t10) : int8',), SAME, 'the value is a small whole number already'),
    Excuse('select', ('operands swapped',), ('g0 t15 = maximum(t14, t6) : float32',), SAME, 'squared, or its size taken; extrema of IEEE 2019 commute'),
    Excuse('select', ('constant an ULP',), ('g0 t3 = -0.5 : float32', 'g0 t4 = 0.5 : float32'), WITHIN, "an ULP of an operand, as eager's own rounding of it"),
    Excuse('pieces', ('axis broadcast', 'stride too small', 'stride too large'), ('g0 add[59*i0 + i1] = t3',), SAME, 'dead: the loop has one round, with index 0'),
    Excuse('pieces', ('only operand 1 kept',), ('g0 t3 = add(t1, t2) : float32', 'g0 t14 = add(t12, t13) : float32'), SAME, '0 + 1'),
    Excuse('pieces', ('zeros lose their sign',), ('g0 add[59*i0 + i1] = t3', 'g0 add[59*i0 + i1] = t6', 'g0 add[59*i0 + i1] = t11', 'g0 add[59*i0 + i1] = t14'), SAME, 'a constant that is no zero was added: never -0, or only by rounding'),
    Excuse('pieces', ('subnormals flushed',), ('g0 add[59*i0 + i1] = t3', 'g0 add[59*i0 + i1] = t6', 'g0 add[59*i0 + i1] = t11', 'g0 add[59*i0 + i1] = t14'), SAME, 'a constant that is no zero was added: no subnormal number comes out, or the store rounds it away'),
    Excuse('pieces', ('constant an ULP',), ('g0 t1 = 0.0 : float32', 'g0 t12 = 0.0 : float32'), SAME, 'the ULP vanishes in a rounding'),
    Excuse('pieces', ('constant an ULP',), ('g0 t2 = 1.0 : float32', 'g0 t13 = 1.0 : float32'), WITHIN, "an ULP of an operand, as eager's own rounding of it"),
    Excuse('pieces', ('tail mask one lane too wide',), ('g0 = icmp slt <16 x 0', 'g0 = icmp slt <16 x 1', 'g0 = icmp slt <16 x 2'), SAME, 'a later nest stores the element; so small a kernel runs in order on one thread'),
    Excuse('lookup', ('constant an ULP',), ('g0 t3 = 3.0 : float32',), SELDOM, 'an ULP of a constant is a rounding, for which 2 ULP have room'),
    Excuse('lookup', ('index checked one too far',), ('g0 = icmp uge <1 x 0', 'g0 = icmp uge <1 x 1', 'g0 = icmp uge <1 x 2', 'g0 = icmp uge <1 x 3'), SAME, 'other vectors check the same index'),
    Excuse('adamw', ('zeros lose their sign',), ('g0 addcmul[i1] = t16',), SAME, 'a sum with a term that is never -0'),
    Excuse('adamw', ('constant an ULP',), ('g0 t1 = 0.10000000149011612 : float32', 'g0 t2 = 0.05000000074505806 : float32', 'g0 t4 = 0.999970018863678 : float32', 'g0 t8 = 9.99999993922529e-09 : float32'), WITHIN, "an ULP of an operand, as eager's own rounding of it"),
    Excuse('module', ('constant an ULP',), ('g0 t1 = 0.10000000149011612 : float32',), SELDOM, 'an ULP of a constant is a rounding, for which 2 ULP have room'),
    Excuse('adamw', ('constant an ULP',), ('g0 t3 = 0.949999988079071 : float32', 'g0 t5 = 0.2709999978542328 : float32'), SELDOM, 'an ULP of a constant is a rounding, for which 2 ULP have room'),
    Excuse('several outputs', ('zeros lose their sign',), ('g0 a1 += t5',), SAME, 'a sum begins with +0, a maximum is subtracted again: the sign of zero goes nowhere'),
    Excuse('several outputs', ('subnormals flushed',), ('g0 a1 += t5',), SAME, 'beside the largest term, or taken in float64 by a term that is normal: below half an ULP of the sum'),
    Excuse('several outputs', ('zeros lose their sign',), ('g0 sum_1[i0] = t7',), SAME, 'never -0: a sum from +0, a quotient of positive numbers, or only subtracted again'),
    Excuse('several outputs', ('subnormals flushed',), ('g0 sum_1[i0] = t7',), SAME, 'a sum of ordinary numbers whose result has no subnormal part'),
    Excuse('several outputs', ('constant an ULP',), ('g0 t1 = 0.0 : float32',), WITHIN, "an ULP of an operand, as eager's own rounding of it"),
    Excuse('several outputs', ('accumulated in float32',), ('g0 every sum',), WITHIN, "32 partial sums: no worse than eager's"),
    Excuse('cross entropy', ('zeros lose their sign',), ('g0 a1 += t3', 'g0 a2 += t8'), SAME, 'a sum begins with +0, a maximum is subtracted again: the sign of zero goes nowhere'),
    Excuse('cross entropy', ('subnormals flushed',), ('g0 a1 += t3', 'g0 a2 += t8'), SAME, 'beside the largest term, or taken in float64 by a term that is normal: below half an ULP of the sum'),
    Excuse('cross entropy', ('zeros lose their sign',), ('g0 log_softmax[35*i0 + i1] = t14', 'g1 neg[i0] = t3'), SAME, 'never -0: a sum from +0, a quotient of positive numbers, or only subtracted again'),
    Excuse('cross entropy', ('subnormals flushed',), ('g0 log_softmax[35*i0 + i1] = t14', 'g1 neg[i0] = t3'), SAME, 'a sum of ordinary numbers whose result has no subnormal part'),
    Excuse('cross entropy', ('taken in twice',), ('g0 a1 += t3',), SAME, 'a maximum of a value with itself'),
    Excuse('cross entropy', ('NaN left out',), ('g0 a1 += t3', 'g0 a2 += t8'), SAME, 'the mean, the maximum or the element itself makes the row NaN anyway'),
    Excuse('cross entropy', ('infinities left out',), ('g0 a2 += t8',), SAME, 'the mean, the maximum or the element itself makes the row NaN anyway'),
    Excuse('cross entropy', ('reduction starts finite',), ('g0 store <16 x float> splat 0',), SAME, 'a row of -Inf is NaN either way; any element replaces the start of a position'),
    Excuse('cross entropy', ('accumulated in float32',), ('g0 every sum',), WITHIN, "32 partial sums: no worse than eager's"),
    Excuse('cross entropy', ('another primitive',), ('g1 t3 = neg(t2) : float32',), SAME, 'a logarithm of a probability is never positive'),
    Excuse('cross entropy', ('index checked one too far',), ('g1 = icmp uge <8 x 0',), SAME, 'other vectors check the same index'),
    Excuse('dropout', ('another primitive',), ('g0 t9 = le(t8, t2) : bool',), SAME, 'one of 2³² random words decides otherwise'),
    Excuse('layers', ('constant an ULP',), ('g1 t1 = 0.5 : float32', 'g1 t5 = 1.100000023841858 : float32'), SELDOM, 'an ULP of a constant is a rounding, for which 2 ULP have room'),
    Excuse('dropout', ('constant an ULP',), ('g0 t3 = 0.699999988079071 : float32',), WITHIN, "an ULP of an operand, as eager's own rounding of it"),
    Excuse('dropout', ('constant one less',), ('g0 t2 = 858993458 : int32',), SAME, 'one of 2³² random words decides otherwise'),
    Excuse('deviation', ('operands swapped',), ('g0 t12 = sub(t11, t8) : float64',), SAME, 'squared'),
    Excuse('deviation', ('zeros lose their sign',), ('g0 a1 += t3', 'g0 a2 += t4', 'g0 a3 += t13'), SAME, 'a sum begins with +0: the sign of zero goes nowhere'),
    Excuse('deviation', ('zeros lose their sign',), ('g0 s0[i1] = t4',), SAME, 'a mean is subtracted, and the difference squared'),
    Excuse('deviation', ('zeros lose their sign',), ('g0 var[i0] = t17',), SAME, 'a sum of squares is never -0'),
    Excuse('deviation', ('subnormals flushed',), ('g0 s0[i1] = t4', 'g0 a2 += t4', 'g0 a3 += t13', 'g0 var[i0] = t17'), SAME, 'no subnormal number: float64 holds those of float32, and the squares of their differences, as normal ones, which are zero in float32'),
    Excuse('deviation', ('constant an ULP',), ('g0 t7 = 83.0 : float64', 'g0 t15 = 82.0 : float64'), SAME, 'an ULP of float64 vanishes in the rounding to float32'),
    Excuse('deviation', ('constant an ULP',), ('g0 t9 = 83.0 : float32',), WITHIN, "an ULP of an operand, as eager's own rounding of it"),
    Excuse('deviation', ('NaN left out',), ('g0 a2 += t4',), SAME, 'the element itself makes its difference from the mean NaN'),
    Excuse('deviation', ('infinities left out',), ('g0 a3 += t13',), SAME, 'an infinity makes the mean infinite, and its own difference NaN; no square of a float32 overflows float64'),
    Excuse('layers', ('zeros lose their sign',), ('g1 mul[i1] = t16', 'g3 s0[i1] = t3', 'g3 s1[i1] = t7', 'g3 softmax[20*i0 + i1] = t10'), SAME, 'never -0: a sum from +0, a quotient of positive numbers, or only subtracted again'),
    Excuse('layers', ('subnormals flushed',), ('g1 mul[i1] = t16',), SAME, 'a sum of ordinary numbers whose result has no subnormal part'),
    Excuse('layers', ('constant an ULP',), ('g1 t2 = 0.044714998453855515 : float32', 'g1 t3 = 0.7978845834732056 : float32'), WITHIN, "an ULP of an operand, as eager's own rounding of it"),
    Excuse('layers', ('one half of the lanes twice',), ('g1 <8 x i32> <i32 8, 7',), SAME, 'a vector of constants of the exponential, no tree'),
    Excuse('layers', ('subnormals flushed',), ('g3 s0[i1] = t3',), SAME, 'read by exp after the maximum is subtracted'),
    Excuse('layers', ('zeros lose their sign',), ('g3 a1 += t3', 'g3 a2 += t7'), SAME, 'a sum begins with +0, a maximum is subtracted again: the sign of zero goes nowhere'),
    Excuse('layers', ('subnormals flushed',), ('g3 a1 += t3', 'g3 a2 += t7'), SAME, 'beside the largest term, or taken in float64 by a term that is normal: below half an ULP of the sum'),
    Excuse('layers', ('taken in twice',), ('g3 a1 += t3',), SAME, 'a maximum of a value with itself'),
    Excuse('layers', ('NaN left out', 'infinities left out'), ('g3 a1 += t3', 'g3 a2 += t7'), SAME, 'the mean, the maximum or the element itself makes the row NaN anyway'),
    Excuse('layers', ('reduction starts finite',), ('g3 store <16 x float> splat 0',), SAME, 'a row of -Inf is NaN either way; any element replaces the start of a position'),
    Excuse('layers', ('accumulated in float32',), ('g3 every sum',), WITHIN, "32 partial sums: no worse than eager's"),
    Excuse('layers', ('memory of another value',), ('mul in matmul', 'softmax in matmul_1'), SAME, "the library's result is read for the last time at that very element"),
    Excuse('module', ('constant an ULP',), ('g0 t2 = 0.8999999761581421 : float32', 'g1 t1 = 0.0 : float32'), WITHIN, "an ULP of an operand, as eager's own rounding of it"),
    Excuse('module', ('steps exchanged',), ('g0 g1',), SAME, 'neither step reads what the other one stores'),
    Excuse('running state', ('operands swapped',), ('g0 t7 = sub(t3, t6) : float32',), SAME, 'squared, or its size taken; extrema of IEEE 2019 commute'),
    Excuse('running state', ('zeros lose their sign',), ('g0 add_1[i1] = t9',), SAME, 'a sum with a term that is never -0'),
    Excuse('running state', ('constant an ULP',), ('g0 t1 = 0.10000000149011612 : float32', 'g0 t2 = 0.8999999761581421 : float32'), WITHIN, "an ULP of an operand, as eager's own rounding of it"),
)
# fmt: on


def excuse(subject: Subject, mutation: Mutation) -> Excuse | None:
    """The rule that excuses a mutant, or None."""
    return next((e for e in EXCUSES if e.covers(subject, mutation)), None)


def unused(made: Iterable[tuple[Subject, Mutation]]) -> list[tuple[str, str, str]]:
    """Program, operator and statement of what the rules name and none of these mutants is."""
    named = {(e.program, o, s) for e in EXCUSES for o in e.operators for s in e.sites}
    return sorted(named - {(s.name, m.operator, statement(m)) for s, m in made})
