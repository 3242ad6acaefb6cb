"""How many of the drawn examples show something, so that a test can fail where nothing was looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st


def counted(check: Callable[..., bool], *drawn: st.SearchStrategy[Any], examples: int) -> int:
    """Call `check` on so many examples, the same ones every time; how often it returned True."""
    count = 0

    @settings(
        max_examples=examples, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.tuples(*drawn))
    def run(example: tuple[Any, ...]) -> None:
        nonlocal count
        count += check(*example)

    run()
    return count
