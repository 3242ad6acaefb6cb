"""A seeded sample of torch's `op_db` over operators of every class; `make conformance` runs all of it."""

from __future__ import annotations

from random import Random

import pytest
import torch
from tests.conformance.errors import check_errors
from tests.conformance.opinfo import DTYPES, Case, cases, check, full_name, operators, variants

PICKED = (
    *("add", "clamp", "where", "nn.functional.gelu", "floor_divide", "bitwise_xor", "isnan", "arange"),
    *("sum", "amax", "argmax", "var_mean", "linalg.vector_norm", "any", "nn.functional.layer_norm"),
    *("softmax", "cat", "flip", "expand", "index_select", "take_along_dim", "nn.functional.mse_loss"),
)
"""Operators of every class that has kernels; their samples over all types are about a tenth of all."""
EACH = 4
"""Cases of an operator, drawn from its types, variants and samples: in all 2 % of `op_db`'s with kernels."""

BY_NAME = {full_name(o): o for o in operators()}


def drawn(name: str) -> list[Case]:
    """Some cases of an operator, the same ones in every run."""
    op, r = BY_NAME[name], Random(name)
    dtype = r.choice([d for d in DTYPES if d in op.dtypes])
    variant = r.choice(list(variants(op)))
    torch.manual_seed(0)
    found = list(cases(op, dtype, variant))
    return r.sample(found, min(EACH, len(found)))


@pytest.mark.parametrize("name", PICKED)
def test_samples(name: str) -> None:
    outcomes = check(drawn(name))
    assert not [f"{o.case}: {o.fault}" for o in outcomes if o.fault]
    assert any(not o.why for o in outcomes), [f"{o.case}: {o.why}" for o in outcomes]


@pytest.mark.parametrize("name", ["sum", "clamp", "cat", "softmax", "flip"])
def test_error_inputs(name: str) -> None:
    count, wrong = check_errors(BY_NAME[name])
    assert not wrong
    assert count or BY_NAME[name].error_inputs_func is None
