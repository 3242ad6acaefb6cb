"""Correct variants that look suspicious: other orders, other formulas, other roundings no worse than eager's.

Each operator is applied at every site; `WHY` says in a line why what it makes conforms. The verifier has to pass all.
"""

# Lambdas bind their own parameters.
# pyright: reportArgumentType=false

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from tests.mutation.assembly import sums_exchanged
from tests.mutation.formulas import formulas
from tests.mutation.harness import Mutation, Subject
from tests.mutation.orders import orders
from tests.mutation.rewrite import Fault, exchanged, numbered
from torch.utils import _pytree as pytree

from fusebound.codegen.tile import Kernel, Loop, Pass

WHY = {
    "times one": "x · 1 = x, for every class of number",
    "less zero": "x - (+0) = x, for -0 too",
    "negated twice": "changing a sign twice changes nothing",
    "choice between equals": "both alternatives are x",
    "operands of a commutative operator exchanged": "IEEE addition, multiplication and 2019 extrema commute",
    "a - b as a + (-b)": "IEEE defines subtraction so",
    "a + b as a - (-b)": "IEEE defines subtraction so",
    "both signs changed": "the signs cancel, and rounding is symmetric",
    "sign changed, and changed again": "rounding to nearest is symmetric",
    "extremum of the negatives": "negating turns the order around, and +0 into -0",
    "-x as x · -1": "an exact product; the sign of a NaN is nobody's",
    "|x| as max(x, -x)": "the larger of +0 and -0 is +0",
    "bound as a choice": "the primitive's own definition",
    "1 / sqrt for rsqrt": "two roundings, as eager's",
    "comparison from the other side": "a < b says b > a, for NaN too",
    "opposite of the opposite": "= and ≠ are each other's opposite, for NaN too",
    "choice with the condition negated": "the alternatives change places with the condition",
    "De Morgan": "¬(¬a ∨ ¬b) = a ∧ b",
    "in float64": "rounding first to 53 bits, then to 24, is rounding once for +, -, ·, / and √ (Figueroa 1995)",
    "nearer by float64": "at most an ULP of float32 from the true value",
    "exp by way of exp2": "2^(x · log2 e), the product in float64",
    "sigmoid by way of exp": "1 / (1 + exp(-x)) in float64",
    "product and sum contracted": "one rounding less; the product's rounded value was not reduced before",
    "another number of accumulators": "another tree over the same terms, in float64",
    "loop in two parts": "another tree over the same terms, or the same points",
    "loop backwards": "the same points, sums in another order",
    "loops exchanged": "the points of a product, in another order",
    "half as many lanes": "another tree over the same terms",
    "twice as many lanes": "another tree over the same terms",
    "four lanes": "another tree over the same terms",
    "one lane": "sums in sequence, in float64",
    "tiles": "tiles are independent of each other",
    "nest in two parts": "tiles are independent of each other",
    "tiles backwards": "tiles are independent of each other",
    "axes of tiles exchanged": "tiles are independent of each other",
    "nests exchanged": "nests write disjoint parts",
    "statements exchanged": "neither reads or writes what the other one makes",
    "computed again for its reader": "the same statement on the same operands",
    "computed again, not recalled": "what was kept, from the same inputs",
    "written twice": "the same value",
    "rubbish written first": "overwritten before anybody reads it",
    "address summed in another order": "integers below 2⁶³",
    "more scratch than needed": "never touched",
    "extremum taken in twice": "max(x, x) = x, and the first of equals wins",
    "neutral element taken in": "it changes nothing",
    "one sweep for each accumulator": "the accumulators do not read each other",
    "accumulators exchanged": "their order says nothing",
    "terms of a sum exchanged": "IEEE addition commutes",
    "results copied": "the same values in fresh memory",
    "arguments copied first": "the program writes to none of them",
    "run twice": "the program keeps no state",
}
"""Why the variants of an operator conform: with the contract, or bit for bit."""


def why(variant: Mutation) -> str:
    """The reason for a variant of this module. Raises KeyError where there is none."""
    return WHY[re.sub(r" of \d+$", "", variant.operator)]


def variants(subject: Subject) -> Iterator[Mutation]:
    """All variants of a program."""
    if subject.given is not subject.args:
        return
    for group, kernel in subject.kernels.items():
        for make in (_lanes, orders, formulas):
            for what, where, edit in make(kernel.program):
                yield Mutation(what, f"{group} {where}", tile=edit, group=group)
        for what, where, change in sums_exchanged(kernel.llvm):
            yield Mutation(what, f"{group} {where}", text=change, group=group)
    for what, wrap in _calls(subject):
        yield Mutation(what, "all", wrap=wrap)


def _lanes(k: Kernel) -> Iterator[Fault]:
    for what, lanes in (
        ("half as many lanes", k.lanes // 2),
        ("twice as many lanes", 2 * k.lanes),
        ("four lanes", 4),
    ):
        yield what, "all", lambda k, n=lanes: replace(k, lanes=n)
    yield "one lane", "all", _scalar


def _scalar(k: Kernel) -> Kernel:
    for at, s in numbered(k):
        if isinstance(s, Loop) and s.vector and not any(isinstance(x, (Loop, Pass)) for x in s.body):
            k = exchanged(k, at, lambda s: (replace(s, copies=1),) if isinstance(s, Loop) else (s,))
    return replace(k, lanes=1)


Call = Callable[[Subject], Callable[..., Any]]


def _calls(subject: Subject) -> Iterator[tuple[str, Call]]:
    """What is done around the call."""

    def copied(s: Subject) -> Callable[..., Any]:
        exe = s.executable()
        return _with_draws(exe, lambda *args: pytree.tree_map_only(torch.Tensor, torch.clone, exe(*args)))

    def own(s: Subject) -> Callable[..., Any]:
        exe = s.executable()
        return _with_draws(exe, lambda *args: exe(*(a.clone() for a in args)))

    def twice(s: Subject) -> Callable[..., Any]:
        exe = s.executable()
        return lambda *args: (exe(*args), exe(*args))[1]

    if subject.captured.graph.outputs:
        yield "results copied", copied
    if not subject.captured.graph.mutations:
        yield "arguments copied first", own
        if not subject.executable().counted_draws:
            yield "run twice", twice


def _with_draws(exe: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    call.counted_draws = exe.counted_draws  # type: ignore[attr-defined]
    return call
