"""Progress on stderr, and the time each phase takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Phases:
    """Names and times the phases of a command; `seconds` holds them in order.

    In a terminal the running phase is shown until its time replaces it; in a pipe a finished phase is a line.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._terminal = sys.stderr.isatty()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self._write(f"  {name} …", final=False)
        start = time.perf_counter()
        try:
            yield
        except BaseException:
            self._write("", final=False)
            raise
        taken = time.perf_counter() - start
        self.seconds[name] = self.seconds.get(name, 0.0) + taken
        self._write(f"  {name:<10} {taken:8.2f} s", final=True)

    def say(self, text: str) -> None:
        """One line of talk."""
        self._write(text, final=True)

    def _write(self, text: str, *, final: bool) -> None:
        if self._terminal:
            print(f"\r\x1b[2K{text}", end="\n" if final else "", file=sys.stderr, flush=True)
        elif final:
            print(text, file=sys.stderr, flush=True)
