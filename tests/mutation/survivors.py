"""Mutants that may survive, each with the reason: the same result for every input, or one within the contract.

A rule names the operator, the programs and the sites that it excuses. "equivalent" survivors are run against the
original and have to give the same bits; "conforming" ones may differ within what docs/gates.md allows.
"""

# ruff: noqa: E501

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.mutation.harness import Mutation, Subject


@dataclass(frozen=True, slots=True)
class Excuse:
    """Regular expressions for operator, program and site, and why such a mutant is no fault."""

    operator: str
    program: str
    site: str
    kind: str
    why: str

    def covers(self, subject: Subject, mutation: Mutation) -> bool:
        """Whether it names this mutant."""
        pairs = ((self.operator, mutation.operator), (self.program, subject.name), (self.site, mutation.site))
        return all(re.fullmatch(pattern, text) for pattern, text in pairs)


SAME, WITHIN = "equivalent", "conforming"
ANY = ".*"
EXCUSES = (
    # What is added up: zeros and subnormals beside larger terms, and sums that begin with +0.
    Excuse("zeros lose their sign", ANY, r".*: a\d+ \+= .*", SAME, "a sum begins with +0, and exp and > ignore the sign"),
    Excuse("subnormals flushed", ANY, r".*: a\d+ \+= .*", WITHIN, "the sum is larger, or the maximum is subtracted again"),
    Excuse("zeros lose their sign", "gate|softmax|deviation|layers|column sums|masked mean|cross entropy|several outputs",
           r".*(div\[|s0\[|s1\[|softmax\[|var\[|mean\[|sum_1\[|neg\[|relu\[).*", SAME, "the value is never -0, or only subtracted"),
    Excuse("zeros lose their sign|subnormals flushed", "bfloat16 chain|pieces", ANY, SAME,
           "a constant that is no zero is added: neither -0 nor a subnormal number comes out"),
    Excuse("subnormals flushed", "adamw|layers|deviation|column sums|several outputs|cross entropy", ANY, WITHIN,
           "the error is below the least normal number; the elements beside it are larger"),
    Excuse("zeros lose their sign", "cross entropy|layers|adamw|module|running state", ANY, WITHIN,
           "a sum with a term that is not zero, or of squares"),
    Excuse("constant an ULP", ANY, ANY, WITHIN, "moves an intermediate by an ULP, as eager's own rounding of it does"),
    # Order and repetition.
    Excuse("operands swapped", ANY, r".*(maximum|minimum)\(.*", WITHIN, "only the sign of zero could differ"),
    Excuse("operands swapped", "layer norm, gelu|deviation|running state", r".*sub\(.*", SAME, "squared, or its size taken"),
    Excuse("taken in twice", "softmax|largest|cross entropy|layers", ANY, SAME, "a maximum of a value with itself"),
    Excuse("NaN of the first operand lost", "quantize|select|several outputs|deviation", ANY, SAME,
           "the first operand is a constant, or NaN comes by the other one"),
    # NaN and infinities that arrive on another way.
    Excuse("NaN left out|infinities left out", "softmax|layer norm, gelu|cross entropy|layers|deviation|rms norm", ANY, SAME,
           "the mean, the maximum or the element itself makes the row NaN anyway"),
    Excuse("reduction starts finite", "softmax|cross entropy|layers", ANY, SAME,
           "a row of -Inf is NaN either way: -Inf less any maximum adds nothing, and 0 / 0"),
    Excuse("reduction starts finite", "largest", ANY, SAME, "the start of the position's value, which any element replaces"),
    Excuse("reduction starts elsewhere", "largest", r".*store <\d+ x i64>.*", SAME, "the position of the start, which the first element replaces"),
    # Precision.
    Excuse("accumulated in float32", ANY, ANY, WITHIN, "32 partial sums: no worse than eager's"),
    Excuse("accumulated in bfloat16|constant one less", "rms norm", ANY, WITHIN, "below half a per cent: within 2 ULP of bfloat16"),
    Excuse("rounding added or left out", "bfloat16 chain|rms norm", ANY, WITHIN, "eager rounds there; wide is nearer to fp64"),
    Excuse("conversion left out", "rms norm", ANY, SAME, "the store converts"),
    Excuse("converted by float16", "rms norm", r".*cast\(t1\d\).*", SAME, "weights of ordinary size are float16 numbers"),
    Excuse("converted by .*", "quantize|masked mean", ANY, SAME, "the value is a small whole number already"),
    # Structure of these very programs.
    Excuse("axis broadcast|stride too small|stride too large", "pieces", r".*t3", SAME, "the loop has one round, with index 0"),
    Excuse("only operand 1 kept", "pieces", ANY, SAME, "0 + 1"),
    Excuse("loop runs too far|tail mask one lane too wide", "pieces", ANY, SAME,
           "a later nest stores these elements; tiles of so small a kernel run in order on one thread"),
    Excuse("index checked one too far", "lookup|cross entropy", ANY, SAME, "other vectors of the row check the same index"),
    Excuse("another primitive", "cross entropy", r".*neg\(.*", SAME, "a logarithm of a probability is never positive"),
    Excuse("another primitive|constant one less", "dropout", ANY, WITHIN, "one of 2³² random words decides otherwise"),
    Excuse("only operand .* kept|another primitive|constant .*|nothing taken in|taken in twice|another accumulator",
           "deviation", ANY, WITHIN, "the correction of the mean's rounding: below the rounding of the result here"),
    Excuse("one half of the lanes twice", "layers", r"g1 .*", SAME, "a vector of constants of the library call, no tree"),
    Excuse("steps exchanged", "module", ANY, SAME, "neither step reads what the other one stores"),
)  # fmt: skip


def excuse(subject: Subject, mutation: Mutation) -> Excuse | None:
    """The rule that excuses a mutant, or None."""
    return next((e for e in EXCUSES if e.covers(subject, mutation)), None)
