"""Random programs and graphs, planned, built and run: eager's results, memory and exceptions.

`make property` looks further, at 10,000 that have a kernel of several operators.
"""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from tests.property.search import EVERY, examined, shown


def counted(seeds: st.SearchStrategy[int], examples: int) -> int:
    """How many of the examples have a kernel of several operators; asserts that none differs from eager."""
    count = 0

    @settings(
        max_examples=examples, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(seeds)
    def agrees(seed: int) -> None:
        nonlocal count
        found = examined(seed)
        event(found.why or "counted")
        count += not found.why
        assert not found.fault, shown(seed, found)

    agrees()
    return count


def test_programs_of_tensors() -> None:
    assert counted(st.integers(0, 2**40).map(lambda k: EVERY * k), 100) >= 60


def test_graphs_of_primitives() -> None:
    assert counted(st.integers(0, 2**40).map(lambda k: EVERY * k + 1), 400) >= 240
