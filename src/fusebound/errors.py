"""One tree of exceptions. Each carries a code, what went wrong, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Self


class FuseboundError(Exception):
    """Base of every error that fusebound raises on purpose; the command line prints it as one diagnostic.

    `code` is stable (`E…`), `where` names the user's file, operator or argument, `hint` says what to do.
    """

    code = "E000"

    def __init__(self, what: str, *, where: str = "", hint: str = "", code: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        if code:
            self.code = code

    def within(self, place: str) -> Self:
        """This error, with `place` (a file) before where it is, unless that names it already."""
        if place not in self.where:
            self.where = f"{place}: {self.where}" if self.where else place
        return self

    def __str__(self) -> str:
        text = f"{self.code}: {self.what}"
        if self.where:
            text += f"\n  at {self.where}"
        if self.hint:
            text += f"\n  hint: {self.hint}"
        return text


class UsageError(FuseboundError):
    """An argument, a name or a file that cannot be used (exit code 2)."""

    code = "E100"


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not one of `known`, with the nearest of them or all (E101)."""
    names = tuple(known)
    close = get_close_matches(name.lower(), names, 1, cutoff=0.5)
    hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(names) or 'none'}"
    return UsageError(f"unknown {kind} {name!r}", hint=hint, code="E101")


class FormatError(UsageError):
    """A file that is damaged or of another kind."""

    code = "E110"


class CaptureError(FuseboundError):
    """The user's function cannot be captured as a graph; `where` is the user's line."""

    code = "E200"


class GraphError(FuseboundError):
    """A graph that breaks a rule of the IR: a fault of fusebound or of a hand-written file."""

    code = "E300"


class BuildError(FuseboundError):
    """A kernel that could not be generated or compiled."""

    code = "E400"


class FallbackError(FuseboundError):
    """Raised with `strict=True` where the default would run eagerly."""

    code = "E500"
