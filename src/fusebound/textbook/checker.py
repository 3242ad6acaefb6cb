"""The textbook's checker: four checks on a pair of operators, NoFuse of one, gain of a pair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from fusebound.errors import UsageError, unknown
from fusebound.textbook.operator import Operator

REGISTER_LIMIT = 48
"""The taught limit on the sum of registers per thread."""

SHARED_LIMIT = 48 * 1024
"""Bytes of shared memory that one block gets on every CUDA device without opting in to more."""

_WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


@dataclass(frozen=True, slots=True)
class NoFuse:
    """The textbook's predicate on one operator; true where any of the `reasons` (short phrases) holds."""

    operator: str
    reasons: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.reasons)


@dataclass(frozen=True, slots=True)
class Gain:
    """What fusing a pair saves. `taught` and `exact` count elements of the tensors between the two.

    The textbook saves each intermediate once, (m+n+k) − (m+k) = n: its write. In truth its read by the second
    operator vanishes too, and its write only if nobody else wants it (see docs/textbook.md).
    """

    taught: int
    exact: int
    itemsize: int
    launches: int

    @property
    def ok(self) -> bool:
        """GainOK: the estimated gain is above the threshold, 0."""
        return self.taught > 0

    @property
    def taught_bytes(self) -> int:
        return self.taught * self.itemsize

    @property
    def exact_bytes(self) -> int:
        return self.exact * self.itemsize


class FusionBoundaryChecker:
    """Decides pairs among the operators that `add_op` listed, in the order of execution.

    Methods take operators or their names; UsageError for one that was not added.
    """

    def __init__(self, register_limit: int = REGISTER_LIMIT, shared_limit: int = SHARED_LIMIT) -> None:
        self.register_limit = register_limit
        self.shared_limit = shared_limit
        self.ops: list[Operator] = []
        self._position: dict[str, int] = {}
        self._readers: dict[str, list[int]] = defaultdict(list)
        self._writers: dict[str, list[int]] = defaultdict(list)

    def add_op(self, op: Operator) -> Operator:
        """Append an operator; returns it. UsageError if its name is taken."""
        if op.name in self._position:
            raise UsageError(f"an operator called {op.name!r} is listed already")
        at = self._position[op.name] = len(self.ops)
        self.ops.append(op)
        for t in dict.fromkeys(op.inputs):
            self._readers[t].append(at)
        for t in dict.fromkeys(op.outputs):
            self._writers[t].append(at)
        return op

    def consumers(self, tensor: str) -> int:
        """consumers(t) = |{op : t ∈ inputs(op)}|."""
        return len(self._readers.get(tensor, ()))

    def several_consumers(self, tensor: str) -> str:
        """ "t2 has two consumers"; empty for one consumer or none."""
        n = self.consumers(tensor)
        return f"{tensor} has {_WORDS.get(n, str(n))} consumers" if n > 1 else ""

    def dep_ok(self, a: Operator | str, b: Operator | str, inside: Collection[str] = ()) -> bool:
        """No output of a has several consumers, and no operator listed between a and b comes in the way.

        One does if it writes a tensor that both read, or lies on a path from a to b. `inside`
        names operators that would be in the same kernel, which therefore do not count.
        """
        first, second = self._op(a), self._op(b)
        if any(self.consumers(t) > 1 for t in first.outputs):
            return False
        i, j = self._position[first.name], self._position[second.name]
        shared = set(first.inputs) & set(second.inputs)
        clobbers = {k for t in shared for k in self._writers.get(t, ()) if i < k < j}
        between = clobbers | (self._reached_from(i, j) & self._reaching(j, i))
        return all(self.ops[k].name in inside for k in between)

    def prec_ok(self, a: Operator | str, b: Operator | str) -> bool:
        """Not a reduction with a reduction."""
        return not (self._op(a).is_reduce and self._op(b).is_reduce)

    def res_ok(self, a: Operator | str, b: Operator | str) -> bool:
        """Σ regs(op) ≤ R_max over the pair."""
        return self._op(a).regs() + self._op(b).regs() <= self.register_limit

    def shared_ok(self, a: Operator | str, b: Operator | str) -> bool:
        """The same sum for shared memory, in bytes per block."""
        return self._op(a).shared_memory + self._op(b).shared_memory <= self.shared_limit

    def threads_ok(self, a: Operator | str, b: Operator | str) -> bool:
        """One block size serves both: equal thread counts, or one that does not care (0)."""
        x, y = self._op(a).threads, self._op(b).threads
        return x == y or not x or not y

    def branch_ok(self, a: Operator | str, b: Operator | str) -> bool:
        """No control flow inside either."""
        return not (self._op(a).uses_branch or self._op(b).uses_branch)

    def check(self, a: Operator | str, b: Operator | str, inside: Collection[str] = ()) -> dict[str, bool]:
        """The four checks of `fuse`, silently."""
        return {
            "dep": self.dep_ok(a, b, inside),
            "prec": self.prec_ok(a, b),
            "res": self.res_ok(a, b),
            "branch": self.branch_ok(a, b),
        }

    def fuse(self, a: Operator | str, b: Operator | str) -> tuple[bool, dict[str, bool]]:
        """May a and b be one kernel? Prints and returns the answer and the checks dep, prec, res, branch.

        As taught, it does not ask whether a value flows from a to b; `edge` tells.
        """
        checks = self.check(a, b)
        ok = all(checks.values())
        print(f"fuse {self._op(a).name} + {self._op(b).name}: {ok} {checks}")
        return ok, checks

    def edge(self, a: Operator | str, b: Operator | str) -> bool:
        """Does b read what a writes (a RAW edge)?"""
        return bool(set(self._op(a).outputs) & set(self._op(b).inputs))

    def no_fuse(self, op: Operator | str) -> NoFuse:
        """NoFuse(B) = Reduce(B) ∨ Dynamic(B) ∨ Branch(B) ∨ consumers(B) > 1, with every reason that holds."""
        b = self._op(op)
        flags = (
            (b.is_reduce, "reduces"),
            (b.dynamic, "has a data-dependent size"),
            (b.uses_branch, "branches"),
        )
        reasons = [f"{b.name} {what}" for holds, what in flags if holds]
        reasons += [f"{b.name}'s {said}" for t in b.outputs if (said := self.several_consumers(t))]
        return NoFuse(b.name, tuple(reasons))

    def gain(self, a: Operator | str, b: Operator | str) -> Gain | None:
        """What fusing the pair saves; None where a's shape is not given."""
        first, second = self._op(a), self._op(b)
        if first.elements is None:
            return None
        between = [t for t in first.outputs if t in second.inputs]
        kept = [t for t in between if self.consumers(t) > 1]
        exact = first.elements * (2 * len(between) - len(kept))
        return Gain(first.elements * len(between), exact, first.itemsize, launches=1)

    def _op(self, op: Operator | str) -> Operator:
        name = op if isinstance(op, str) else op.name
        if name not in self._position:
            raise unknown("operator", name, (o.name for o in self.ops))
        return self.ops[self._position[name]]

    def _reached_from(self, start: int, stop: int) -> set[int]:
        """Positions between the two that depend on the operator at `start`."""
        return self._closure(start, lambda k: self.ops[k].outputs, self._readers, lambda k, m: k < m < stop)

    def _reaching(self, end: int, start: int) -> set[int]:
        """Positions between the two on which the operator at `end` depends."""
        return self._closure(end, lambda k: self.ops[k].inputs, self._writers, lambda k, m: start < m < k)

    def _closure(
        self,
        start: int,
        tensors: Callable[[int], Sequence[str]],
        table: Mapping[str, list[int]],
        allowed: Callable[[int, int], bool],
    ) -> set[int]:
        found: set[int] = set()
        work = [start]
        while work:
            k = work.pop()
            for m in (m for t in tensors(k) for m in table.get(t, ()) if allowed(k, m) and m not in found):
                found.add(m)
                work.append(m)
        return found
