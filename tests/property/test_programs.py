"""Random programs and graphs, planned, built and run: eager's results, memory and exceptions.

`make property` looks further, at 10,000 that have a kernel of several operators.
"""

from __future__ import annotations

from hypothesis import event
from hypothesis import strategies as st
from tests.property.counting import counted
from tests.property.search import EVERY, examined, shown


def counts(seed: int) -> bool:
    """Whether the program of a seed has a kernel of several operators; asserts that it does not differ from eager."""
    found = examined(seed)
    event(found.why or "counted")
    assert not found.fault, shown(seed, found)
    return not found.why


def test_programs_of_tensors() -> None:
    assert counted(counts, st.integers(0, 2**40).map(lambda k: EVERY * k), examples=100) >= 60


def test_graphs_of_primitives() -> None:
    assert counted(counts, st.integers(0, 2**40).map(lambda k: EVERY * k + 1), examples=400) >= 240
