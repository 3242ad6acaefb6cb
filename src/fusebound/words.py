"""Numbers with their nouns, as messages say them."""

from __future__ import annotations


def count(n: int, one: str, many: str = "") -> str:
    """`1 kernel`, `3 kernels`, `1,024 bytes`; `many` is the plural where it is not `one` with an s."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
