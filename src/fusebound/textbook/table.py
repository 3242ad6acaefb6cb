"""The table of the textbook's example, computed by the checker."""

from __future__ import annotations

from dataclasses import dataclass

from fusebound.textbook.checker import FusionBoundaryChecker
from fusebound.textbook.example import PAIRS, checker

HEADER = ("pair", "dep", "prec", "res", "branch", "checker", "NoFuse of either")


@dataclass(frozen=True, slots=True)
class Row:
    """One pair: whether each check passes, the sum of registers, the checker's answer, why NoFuse refuses.

    `dep_why` names the tensors with several consumers; `no_fuse` is empty where NoFuse holds for neither;
    `edge` tells whether the second operator reads what the first writes.
    """

    a: str
    b: str
    dep: bool
    dep_why: str
    prec: bool
    res: bool
    registers: int
    branch: bool
    fuse: bool
    no_fuse: tuple[str, ...]
    edge: bool

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, one cell for each entry of HEADER."""
        return (
            f"{self.a} + {self.b}",
            _state(self.dep) + (f": {self.dep_why}" if self.dep_why else ""),
            _state(self.prec),
            f"{_state(self.res)} ({self.registers})",
            _state(self.branch),
            "fuse" if self.fuse else "no",
            f"refused: {', '.join(self.no_fuse)}" if self.no_fuse else "allowed",
        )

    @property
    def note(self) -> str:
        """What the checker does not say: that it never asked for an edge. Empty where there is one."""
        if self.edge:
            return ""
        answer = "lets the pair through" if self.fuse else "judges the pair"
        return (
            f"{self.a} + {self.b} has no edge: {self.b} does not read what {self.a} writes. "
            f"The checker {answer} because it never asks for one."
        )


def rows() -> tuple[Row, ...]:
    """The rows of the textbook's example."""
    c = checker()
    return tuple(row(c, a, b) for a, b in PAIRS)


def row(c: FusionBoundaryChecker, a: str, b: str) -> Row:
    """The row of any two operators of a checker, by name."""
    checks = c.check(a, b)
    by_name = {o.name: o for o in c.ops}
    shared = [said for t in by_name[a].outputs if (said := c.several_consumers(t))]
    first, second = c.no_fuse(a), c.no_fuse(b)
    refusals = [*second.reasons, *(_short(r, a, shared) for r in first.reasons)]
    return Row(
        a, b, checks["dep"], ", ".join(shared), checks["prec"], checks["res"],
        by_name[a].regs() + by_name[b].regs(), checks["branch"], all(checks.values()),
        tuple(refusals), c.edge(a, b),
    )  # fmt: skip


def _short(reason: str, a: str, shared: list[str]) -> str:
    """Without the owner's name where the tensor lies between the two, as in the column dep."""
    bare = reason.removeprefix(f"{a}'s ")
    return bare if bare in shared else reason


def _state(ok: bool) -> str:
    return "pass" if ok else "fail"
