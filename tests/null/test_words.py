"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from fusebound.words import count


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (count(0, "kernel"), "0 kernels"),
        (count(1, "kernel"), "1 kernel"),
        (count(2, "kernel"), "2 kernels"),
        (count(1, "entry", "entries"), "1 entry"),
        (count(2, "entry", "entries"), "2 entries"),
        (count(1024, "byte"), "1,024 bytes"),
    ],
)
def test_one_and_many(said: str, words: str) -> None:
    assert said == words
