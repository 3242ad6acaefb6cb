"""What a line of `fusebound log` says of a decision."""

from __future__ import annotations

from fusebound.cli.log import _reason, _refuses
from fusebound.gates.base import Verdict, passed
from fusebound.gates.decide import Judgement

DOMAIN = Verdict("dependence", "fail", "F501", "the domains differ")
UNJUDGED = Verdict("resources", "unknown", "F501", "not judged")
LOSS = Verdict("gain", "fail", "F401", "fusing would cost 3 µs")


def test_a_filtered_gate_speaks_for_itself() -> None:
    both = Judgement(DOMAIN, passed("precision", "exact"), UNJUDGED, LOSS)
    assert _reason(both, "gain") == ("F401", "fusing would cost 3 µs")
    assert _reason(both, None) == _reason(both, "dependence") == ("F501", "the domains differ")


def test_a_gate_that_judged_nothing_refuses_nothing() -> None:
    assert [_refuses(v) for v in (DOMAIN, UNJUDGED, LOSS, passed("gain", "saves 1 µs"))] == [
        True, False, True, False,
    ]  # fmt: skip
    assert _refuses(Verdict("dependence", "unknown", "F108", "a search ended")), "an unknown hazard vetoes"
