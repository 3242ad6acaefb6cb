"""GPT-2, BERT and ViT: as accurate as eager, really fused, and their bytes counted right."""

from __future__ import annotations

import pytest
import torch
from tests.conformance.whole_models import MODELS, fused_bytes, light_bytes, tally

from fusebound.capture.torch import Captured, capture
from fusebound.engine.build import build
from fusebound.plan.greedy import plan
from fusebound.plan.plan import Plan
from fusebound.target import get
from fusebound.verify.check import verify
from fusebound.verify.inputs import PLAIN


@pytest.fixture(scope="module")
def planned() -> dict[str, tuple[Captured, tuple[object, ...], Plan]]:
    torch.manual_seed(0)
    found = {}
    for name, make in MODELS.items():
        model, args = make()
        captured = capture(model.eval(), args, name=name)
        found[name] = captured, args, plan(captured.graph, target=get("cpu-avx512"))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_no_worse_than_eager(
    name: str, planned: dict[str, tuple[Captured, tuple[object, ...], Plan]]
) -> None:
    captured, args, p = planned[name]
    result = verify(build(p, captured), captured, args, sets=PLAIN)
    assert result.ok, result


@pytest.mark.parametrize("name", MODELS)
def test_bytes_agree_with_a_tally_of_eagers_tensors(
    name: str, planned: dict[str, tuple[Captured, tuple[object, ...], Plan]]
) -> None:
    captured, args, _ = planned[name]
    assert light_bytes(captured.graph) == pytest.approx(tally(captured, args), rel=0.01)


def test_most_bytes_of_light_operators_are_moved_by_kernels_of_several(
    planned: dict[str, tuple[Captured, tuple[object, ...], Plan]],
) -> None:
    moved = sum(light_bytes(c.graph) for c, _, _ in planned.values())
    fused = sum(fused_bytes(p) for _, _, p in planned.values())
    assert fused >= 0.8 * moved
