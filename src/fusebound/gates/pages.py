"""The pages that explain the codes, and the example graph inside each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from fusebound.errors import FormatError, UsageError
from fusebound.gates.base import Candidate
from fusebound.ir.graph import Graph
from fusebound.ir.text import parse_graph

HOME = "fusebound.gates"
"""The package whose `pages/` holds these."""

_BLOCK = re.compile(r"^```fusebound\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_REPEAT = re.compile(r"^repeat i = (\d+) … (\d+): (.*)\n", re.MULTILINE)
_PLACE = re.compile(r"\{(?:(\d+)-)?i([+-]\d+)?\}")
_SETTING = re.compile(
    r"^# (pair|hardware|numerics|tau|policy|expected_calls|forbid|require|measured): (.+)$", re.MULTILINE
)


@dataclass(frozen=True)
class Example:
    """The graph of a page and the question that yields the page's code.

    `a` and `b` name the user operators of the two groups to merge. `settings` holds what else the page sets:
    hardware (a target's name), numerics, tau, policy, expected_calls, forbid and require (two patterns each),
    measured (µs as one kernel and through the framework); absent ones keep their defaults.
    """

    graph: Graph
    a: tuple[str, ...]
    b: tuple[str, ...]
    settings: Mapping[str, str]

    def candidate(self) -> Candidate:
        """The merge that the page asks about."""
        a, b = (frozenset(n.id for u in side for n in self.graph.members[u]) for side in (self.a, self.b))
        return Candidate(self.graph, a, b)


@cache
def read(package: str) -> Mapping[str, str]:
    """The Markdown pages in a package's `pages/`, by code, in order."""
    folder = files(package) / "pages"
    found = {p.name.removesuffix(".md"): p for p in folder.iterdir() if p.name.endswith(".md")}
    return {code: found[code].read_text("utf-8") for code in sorted(found)}


def codes() -> list[str]:
    """All codes that have a page, in order."""
    return list(read(HOME))


def page(code: str, pages: Mapping[str, str] | None = None) -> str:
    """The page of a code, among the gates' or those given. Raises UsageError (E101), with close codes, for one
    without a page."""
    known = read(HOME) if pages is None else pages
    found = known.get(code.upper())
    if found is None:
        close = get_close_matches(code.upper(), known, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(close)}?" if close else "`fusebound explain` lists all codes"
        raise UsageError(f"there is no code `{code}`", hint=hint, code="E101")
    return found


def title(code: str) -> str:
    """The headline of a page, without the code."""
    return headline(page(code))


def headline(text: str) -> str:
    """The first line of a page, `# CODE: …`, without the code."""
    return text.partition("\n")[0].partition(": ")[2]


def example(code: str) -> Example:
    """The example of a page; FormatError where the page has none that can be read."""
    block = _BLOCK.search(page(code))
    if block is None:
        raise FormatError(f"the page of {code} has no example")
    settings = dict(_SETTING.findall(block[1]))
    if "pair" not in settings or len(settings["pair"].split()) != 2:
        raise FormatError(f"the example of {code} names no pair")
    a, b = (tuple(side.split("+")) for side in settings.pop("pair").split())
    return Example(parse_graph(_REPEAT.sub(_repeated, block[1])), a, b, settings)


def _repeated(m: re.Match[str]) -> str:
    """The lines that `repeat i = 1 … 9: %a.{i} = abs(%a.{i-1})` stands for; `{9-i}` counts down."""

    def line(i: int) -> str:
        return _PLACE.sub(lambda p: str((int(p[1]) - i if p[1] else i) + int(p[2] or 0)), m[3])

    return "".join(f"{line(i)}\n" for i in range(int(m[1]), int(m[2]) + 1))
