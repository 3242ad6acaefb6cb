"""Every labelled pair is answered with its true cause, the bytes at stake and the change that would allow it."""

from __future__ import annotations

import pytest
from tests.conformance.pairs import PAIRS, Pair

import fusebound as fb

FACTS = {"hardware": "cpu-avx512", "expected_calls": 10**6}


@pytest.mark.parametrize("p", PAIRS, ids=lambda p: p.name)
def test_the_answer_names_the_true_cause(p: Pair) -> None:
    graph = fb.capture(p.fn, *p.inputs())
    found = fb.can_fuse(graph, p.a, p.b, **{**FACTS, **p.facts})
    veto = found.judgement.first
    assert (veto.code if veto is not None else "") == p.code, str(found)
    if veto is not None:
        assert p.says in veto.message
        assert veto.counterfactual and p.flip in veto.counterfactual
    if p.saved is not None:
        assert found.saved_bytes == p.saved
    if p.notes:
        facts = {e.quantity for v in found.judgement.verdicts for e in v.evidence}
        assert p.notes in found.codes or any(f"({p.notes})" in q for q in facts)


def test_there_are_enough_labels_of_enough_kinds() -> None:
    assert len({p.name for p in PAIRS}) == len(PAIRS) >= 80
    assert len({p.code for p in PAIRS}) >= 20
