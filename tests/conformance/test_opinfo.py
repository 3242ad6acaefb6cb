"""A seeded 2 % of torch's `op_db`, drawn over all operators and types; `make conformance` runs all of it."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest
import torch
from tests.conformance.errors import check_errors
from tests.conformance.opinfo import DTYPES, OpInfo, Outcome, cases, check, operators, variants

from fusebound.capture.registry import LOWERINGS

SEED, SHARE, EACH = 0, 0.02, 4
"""The draw, its share of the pairs of an operator and a type, and the cases of a pair."""
FEWEST = 0.6
"""The share of the cases that must be in kernels: the others are types and forms that stay with the framework."""

LOWERED = {target.split(".")[1].removeprefix("_foreach_") for target in LOWERINGS}
OPERATORS = {name: o for name, o in operators().items() if o.name.split(".")[-1] in LOWERED}
"""Operators some form of which is lowered."""
PAIRS = [(name, d) for name, o in OPERATORS.items() for d in DTYPES if d in o.dtypes]
DRAWN = Random(SEED).sample(PAIRS, round(SHARE * len(PAIRS)))


@cache
def outcomes(name: str, dtype: torch.dtype) -> tuple[Outcome, ...]:
    """What became of some samples of an operator, the same ones in every run."""
    op, r = OPERATORS[name], Random(f"{SEED} {name} {dtype}")
    found = cases(op, dtype, r.choice(list(variants(op))))
    return tuple(check(r.sample(found, min(EACH, len(found)))))


@pytest.mark.parametrize(("name", "dtype"), DRAWN, ids=lambda x: str(x).removeprefix("torch."))
def test_samples(name: str, dtype: torch.dtype) -> None:
    assert not [f"{o.case}: {o.fault}" for o in outcomes(name, dtype) if o.fault]


def test_most_samples_are_in_kernels() -> None:
    whys = [o.why for pair in DRAWN for o in outcomes(*pair)]
    assert len(whys) >= 100 and whys.count("") >= FEWEST * len(whys), whys


def refused() -> list[str]:
    """Operators with error inputs, a few of them."""

    def has(op: OpInfo) -> bool:
        return op.error_inputs_func is not None

    return Random(SEED).sample([n for n, o in OPERATORS.items() if has(o)], 3)


@pytest.mark.parametrize("name", refused())
def test_error_inputs(name: str) -> None:
    count, wrong = check_errors(OPERATORS[name])
    assert count and not wrong
