"""The graph of groups: merging, reachability and a topological order that is kept up to date."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from fusebound.analysis.draws import generator_order
from fusebound.ir.graph import Graph


class Contracted:
    """User operators contracted to groups. Group ids are indices of user operators.

    Operators that move the framework's generator keep their order, as if each fed the next.
    """

    def __init__(self, g: Graph, numerics: str = "accurate") -> None:
        self.g = g
        self.users: dict[int, list[int]] = {i: [i] for i in range(len(g.user_ops))}
        self.nodes: dict[int, frozenset[str]] = {}
        self.succ: dict[int, set[int]] = {i: set() for i in self.users}
        self.pred: dict[int, set[int]] = {i: set() for i in self.users}
        self._group = list(range(len(g.user_ops)))
        self.index = {u.name: i for i, u in enumerate(g.user_ops)}
        for i, u in enumerate(g.user_ops):
            self.nodes[i] = frozenset(n.id for n in g.members[u.name])
        for n in g.nodes:
            here = self.index[n.user]
            for v in n.inputs:
                p = g.producer.get(v)
                if p is not None and p.user != n.user:
                    self.succ[self.index[p.user]].add(here)
                    self.pred[here].add(self.index[p.user])
        for a, b in pairwise(generator_order(g, numerics)):
            self.succ[self.index[a]].add(self.index[b])
            self.pred[self.index[b]].add(self.index[a])
        self.order = sorted(self.users, key=lambda i: self._first(i))
        self.at = {i: k for k, i in enumerate(self.order)}

    def _first(self, i: int) -> int:
        return min((self.g.position[n] for n in self.nodes[i]), default=0)

    def find(self, user: int) -> int:
        """The group that holds a user operator."""
        while self._group[user] != user:
            self._group[user] = self._group[self._group[user]]
            user = self._group[user]
        return user

    def returns(self, groups: Collection[int]) -> bool:
        """Whether a path leaves these groups and comes back: merging them would make a cycle."""
        return self._reach(groups) is None

    def merge(self, groups: Collection[int]) -> int:
        """Contract groups that `returns` is False for; the first in order gives its id.

        Linear in the window of the order between the first and the last.
        """
        after = self._reach(groups)
        if after is None:
            raise ValueError("merging these groups would make a cycle")
        chosen = set(groups)
        keep = min(chosen, key=self.at.__getitem__)
        self._reorder(chosen, keep, after)
        self._join(chosen, keep)
        return keep

    def _reach(self, groups: Collection[int]) -> set[int] | None:
        """Groups after these within their window, or None when one of them is reached again."""
        chosen = set(groups)
        last = max(self.at[i] for i in chosen)
        seen: set[int] = set()
        stack = [s for i in chosen for s in self.succ[i] if s not in chosen]
        while stack:
            i = stack.pop()
            if i in seen or self.at[i] > last:
                continue
            seen.add(i)
            if self.succ[i] & chosen:
                return None
            stack.extend(self.succ[i])
        return seen

    def _reorder(self, chosen: set[int], keep: int, after: set[int]) -> None:
        lo = min(self.at[i] for i in chosen)
        hi = max(self.at[i] for i in chosen)
        window = self.order[lo : hi + 1]
        before = [i for i in window if i not in chosen and i not in after]
        behind = [i for i in window if i in after]
        fresh = [*before, keep, *behind]
        pad = [i for i in chosen if i != keep]
        self.order[lo : hi + 1] = fresh + pad
        for k, i in enumerate(self.order[lo : hi + 1], lo):
            self.at[i] = k

    def _join(self, chosen: set[int], keep: int) -> None:
        for i in chosen - {keep}:
            self._group[i] = keep
            self.users[keep] += self.users.pop(i)
            self.nodes[keep] |= self.nodes.pop(i)
            self._move(self.succ, self.pred, i, keep)
            self._move(self.pred, self.succ, i, keep)
        self.succ[keep] -= chosen
        self.pred[keep] -= chosen
        self.users[keep].sort()

    def _move(self, out: dict[int, set[int]], back: dict[int, set[int]], i: int, keep: int) -> None:
        for j in out.pop(i):
            if j in back:
                back[j].discard(i)
                if j != keep:
                    back[j].add(keep)
                    out[keep].add(j)

    def live(self) -> list[int]:
        """Groups in topological order."""
        return [i for i in self.order if i in self.users]

    def names(self, group: int) -> tuple[str, ...]:
        """The user operators of a group, in graph order."""
        return tuple(self.g.user_ops[i].name for i in self.users[group])

    def owner(self, groups: Iterable[int]) -> dict[str, frozenset[str]]:
        """The node sets of groups, by node."""
        return {n: self.nodes[i] for i in groups for n in self.nodes[i]}
